"""The flags that experiments share, and the settings they give.

A flag that is not given takes the value of the preset.
"""

import dataclasses
from typing import Any

from absl import flags

from experiments import exemplar_flags, launch, presets
from experiments.effects import check_effect
from experiments.settings import Settings
from mnemonics_jax import registry
from mnemonics_jax.errors import UserError

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(launch)
flags.adopt_module_key_flags(exemplar_flags)

# Methods and data.
flags.DEFINE_enum(
  "method",
  None,
  list(registry.METHODS),
  "Base method, and the read-out its results are measured by."
  f" {registry.choices(registry.METHODS)}.",
)
flags.DEFINE_enum(
  "exemplars",
  None,
  list(registry.EXEMPLARS),
  f"Exemplars of a class. {registry.choices(registry.EXEMPLARS)}.",
)
flags.DEFINE_string(
  "memory",
  None,
  "What may be kept of old classes: per_class:20 (20 images of every class) or"
  " total:2000 (2000 images altogether, fewer per class as classes arrive);"
  " per_class_bytes:61440 or total_bytes:6144000, as many as fit.",
)
flags.DEFINE_string(
  "codec",
  None,
  f"How exemplars are kept. {registry.choices(registry.CODECS)}. A quality from 1"
  " to 100 follows, as in jpeg:75. Images are decoded once a phase.",
)
flags.DEFINE_bool(
  "code_new",
  None,
  "Whether new images are trained on as --codec would keep them, so that what is"
  " lost by it does not tell old classes from new ones.",
)
flags.DEFINE_string(
  "rehearsal",
  None,
  f"How often old exemplars are drawn. {registry.choices(registry.REHEARSALS)}. An"
  " epoch has as many steps as with once, so that new images come less often.",
)
flags.DEFINE_enum(
  "transfer",
  None,
  list(registry.TRANSFERS),
  "Weight transfer: learn scales and shifts over frozen weights after phase 0."
  f" {registry.choices(registry.TRANSFERS)}.",
)
flags.DEFINE_enum(
  "finetune",
  None,
  list(registry.FINETUNES),
  "The balanced fine-tune at the end of each phase, which trains on the memory."
  f" {registry.choices(registry.FINETUNES)}. It is a part of --method=e2e, whose"
  " default is all.",
)
flags.DEFINE_bool(
  "distill",
  None,
  "Whether the old model's knowledge enters the loss (--nodistill drops it).",
)
flags.DEFINE_float(
  "less_forget",
  None,
  "λ_base of --method=lucir: how strongly features are held to those of the old"
  " model. The default is 5, and 10 for image folders, as for ImageNet.",
)
flags.DEFINE_bool(
  "reference_code",
  None,
  "Details as in the code that made the published numbers, on with"
  " --preset=paper: lucir averages its margin loss over classes and starts σ at 1"
  " (otherwise: a sum, and 10); lwf, icarl, bic and e2e keep the last ReLU.",
)

# Protocol.
flags.DEFINE_list(
  "phases",
  None,
  "N: phases after the base phase; the remaining classes are spread evenly. With 0"
  " only the base phase is learned, such as to publish its model."
  " A table takes several, such as 5,10,25; a run takes one.",
)
flags.DEFINE_integer(
  "base_classes",
  None,
  "Classes of phase 0. The default is half of all; with 0 the first of the"
  " --phases is phase 0.",
)
flags.DEFINE_integer(
  "classes",
  None,
  "Learn only the first classes of the order, such as to try something on a few"
  " phases. The default is all.",
)
flags.DEFINE_integer(
  "order_seed", None, "Seed of the order in which classes arrive."
)
flags.DEFINE_list(
  "seeds",
  None,
  "Trains once per seed, such as 0,1,2: initialisation, sampling and"
  " augmentation differ, the class order does not. Results are given as mean"
  " and 95 % confidence interval.",
)

# Training.
flags.DEFINE_enum(
  "preset",
  "short",
  list(registry.PRESETS),
  f"{registry.choices(registry.PRESETS)}. paper has the paper's stages (--adjust,"
  " --transfer, --finetune), too, with --exemplars=mnemonics. Single flags"
  " override the preset.",
)
flags.DEFINE_enum(
  "net",
  None,
  list(registry.NETWORKS),
  f"Network. {registry.choices(registry.NETWORKS)}.",
)
flags.DEFINE_enum(
  "augment",
  None,
  list(registry.AUGMENTATIONS),
  f"How training images vary. {registry.choices(registry.AUGMENTATIONS)}.",
)
flags.DEFINE_integer("epochs", None, "Epochs of every phase after phase 0.")
flags.DEFINE_integer("base_epochs", None, "Epochs of phase 0.")
flags.DEFINE_integer("batch_size", None, "Images per training step.")
flags.DEFINE_float(
  "learning_rate", None, "Initial rate of SGD, or the highest; see --curve."
)
flags.DEFINE_float(
  "base_learning_rate",
  None,
  "That of phase 0. The default is --learning_rate, where that is given, or the"
  " preset's.",
)
flags.DEFINE_enum(
  "curve",
  None,
  list(registry.CURVES),
  f"How the learning rate goes. {registry.choices(registry.CURVES)}. The"
  " fine-tune's is constant.",
)
flags.DEFINE_float("weight_decay", None, "L2 regularisation.")
flags.DEFINE_integer("finetune_epochs", None, "Epochs of the fine-tune.")
flags.DEFINE_float(
  "finetune_learning_rate", None, "Constant rate of the fine-tune."
)
flags.DEFINE_integer(
  "images_per_class",
  None,
  "Train on only the first images of each class; for quick trials.",
)
flags.DEFINE_float(
  "tuning_fraction",
  None,
  "Test on this share of the training images of each class, and train on the"
  " others: settings are chosen without a look at the test images.",
)
flags.DEFINE_enum(
  "dtype",
  None,
  list(registry.DTYPES),
  f"Type of activations. {registry.choices(registry.DTYPES)}; parameters,"
  " statistics, losses and exemplars stay float32.",
)
flags.DEFINE_bool(
  "remat",
  None,
  "Store only the input of each block for the backward pass and compute the rest"
  " again: a third more work, the same numbers. On GPU and TPU; XLA's scheduling"
  " for CPUs saves nothing by it.",
)
flags.DEFINE_enum(
  "stream",
  None,
  list(registry.STREAMS),
  "Whether images stay on the host or on a disk and stream to the device while it"
  f" trains. {registry.choices(registry.STREAMS)}. The numbers are the same.",
)

# Files.
flags.DEFINE_string(
  "workdir",
  None,
  "Where results go. The default is a directory below runs/ named after the"
  " settings; running the same command again uses what has finished there.",
)
flags.DEFINE_bool(
  "fresh",
  False,
  "Start over in a new directory; the old one stays. To"
  " continue what it has begun, name the new one with --workdir instead.",
)
flags.DEFINE_float(
  "checkpoint_every",
  180.0,
  "Seconds between checkpoints within a phase; there is one after every phase,"
  " too. The same command continues from the newest.",
)
flags.DEFINE_integer(
  "keep",
  None,
  "Checkpoints of phases to keep for each seed, the newest ones; the default is"
  " all of them.",
)
flags.DEFINE_float(
  "patience",
  25.0,
  "Seconds after Ctrl-C or SIGTERM in which a run saves where it is; more if its"
  " steps and saves take longer. They begin again when it comes to saving.",
)
flags.DEFINE_string(
  "base_models",
  None,
  "Directory for models of phase 0. Runs that name the same one train those"
  " they have in common only once; the numbers do not change. Published models are"
  " found there, too.",
)
flags.DEFINE_string(
  "base_model",
  None,
  "A published model of phase 0 to begin with instead of training one, such as"
  " results/base_models/cifar100_resnet32_lucir; it must know the same classes and"
  " have the same network and kind of head.",
)
flags.DEFINE_bool("tensorboard", True, "Also write TensorBoard events.")
flags.DEFINE_bool(
  "report_every_phase",
  False,
  "Rewrite report.html whenever a phase has ended; `experiments.report` does it for"
  " a run that has not ended, too.",
)


def given_settings() -> dict[str, Any]:
  """The settings for which a flag was given; phases and seeds as tuples."""
  fields = {field.name for field in dataclasses.fields(Settings)}
  given: dict[str, Any] = {
    name: FLAGS[name].value
    for name in sorted(fields & set(FLAGS) - {"dataset", "preset"})
    if FLAGS[name].value is not None
  }
  for name in {"phases", "seeds"} & given.keys():
    try:
      given[name] = tuple(int(number) for number in given[name])
    except ValueError:
      raise UserError(
        name,
        f"`{name}={','.join(given[name])}` is not a list of whole numbers",
        f"write `{name}={'5' if name == 'phases' else '0,1,2'}`",
      ) from None
  return given


def settings_from_flags(dataset: str) -> Settings:
  """The preset of a data set, overridden by every flag that was given."""
  preset, given = FLAGS.preset, given_settings()
  if "phases" in given:
    if len(given["phases"]) != 1:
      raise UserError(
        "phases",
        f"`phases={','.join(map(str, given['phases']))}` is not one number, which"
        " a run takes",
        "write `phases=5`",
      )
    (given["phases"],) = given["phases"]
  values = presets.values(dataset, preset, given)
  settings = Settings(dataset, preset, **(values | given))
  check_effect(settings, given)
  return settings
