"""The flags that say how exemplars are learned and adjusted."""

from absl import flags

from mnemonics_jax import registry

flags.DEFINE_enum(
  "init_exemplars",
  None,
  list(registry.INIT_EXEMPLARS),
  "Start images of --exemplars=mnemonics.",
)
flags.DEFINE_enum(
  "validate_on",
  None,
  list(registry.VALIDATIONS),
  "What validates new exemplars of --exemplars=mnemonics."
  f" {registry.choices(registry.VALIDATIONS)}. The default is new with"
  " --recipe=paper and all with --recipe=tuned.",
)
flags.DEFINE_bool(
  "adjust",
  None,
  "Adjust the old exemplars in every phase, one part validated by the others.",
)
flags.DEFINE_integer(
  "adjust_parts",
  None,
  "Parts of the old exemplars for --adjust, the same number of images of every"
  " class in each; the default is 2 halves, as in the paper.",
)
flags.DEFINE_enum(
  "recipe",
  None,
  list(registry.RECIPES),
  f"How exemplars are learned. {registry.choices(registry.RECIPES)}.",
)
flags.DEFINE_enum(
  "scope",
  None,
  list(registry.SCOPES),
  "What the base level trains on the exemplars; the default is the recipe's."
  f" {registry.choices(registry.SCOPES)}.",
)
flags.DEFINE_integer(
  "max_change",
  None,
  "Trust region of learned exemplars in grey levels: how far a pixel may move"
  " from its start image, and again in each adjustment.",
)
flags.DEFINE_integer(
  "frequencies",
  None,
  "Learned exemplars change in the lowest frequencies of 8×8 blocks only: 1 is"
  " their brightness, 15 is all; by default all.",
)
flags.DEFINE_integer(
  "drift",
  None,
  "Copies of the model for which new exemplars are learned beside it, each after"
  " some epochs of an imitated next phase: rotated images are its classes. The last"
  " phase has none.",
)
flags.DEFINE_bool(
  "imitate",
  None,
  "Learn new exemplars through the training of an imitated next phase, with the"
  " method's own loss and the whole network (slow on a CPU). Nothing follows the last"
  " phase: its exemplars are learned as without it.",
)
flags.DEFINE_integer("meta_epochs", None, "Epochs of the exemplar level.")
flags.DEFINE_bool(
  "augment_exemplars",
  None,
  "Whether exemplars are augmented while they are learned.",
)
flags.DEFINE_integer(
  "exemplar_chunk",
  None,
  "Classes whose exemplars are learned at a time, for devices whose memory does"
  " not hold an unroll over all of them. The default is all.",
)
