"""All settings of a run, each declared once.

To add a setting, declare it here and use it: everything else is derived, see
`declare.setting`. A setting with a `to` is a keyword of what it goes to, which is its
use. The class says who has it:

  Phase      `phase.Config`, the Learner and a run
  Recipe     the Learner and a run
  Settings   a run: its data, its protocol and names of the library's values
  Command    a command: where files go and where it computes. No result depends on it
"""

from collections.abc import Callable
import dataclasses
import hashlib
import json
import re
from typing import Any

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import registry
from mnemonics_jax.data.sources import SOURCES
from mnemonics_jax.errors import UserError
from mnemonics_jax.package import NUMERICS
from mnemonics_jax.runs import base_models
from mnemonics_jax.settings.declare import (
  Complete,
  Declared,
  declared,
  setting,
  unless,
)

PROTOCOL, METHOD, KEPT = "Classes and phases", "Method", "Exemplars and memory"
TRAINING, READING = "Training", "Reading data"
FILES, MACHINES = "Files", "Devices and processes"

_COUNT: Any = dict(least=1, most=10**6)
_SEED: Any = dict(least=0, most=2**32 - 1)
_LEARNED = dict(exemplars="mnemonics")
_NOT_JOINT = dict(method=unless("joint"))
_LEARNED_OR_ADJUSTED = (_LEARNED, dict(adjust=True))
_SCORED = (dict(exemplars=("mnemonics", "selected")), dict(adjust=True))
_FINETUNED = dict(finetune=unless("none"))
# Training views of ImageNet vary already. Exemplars are augmented while they are learned
# and while they are fine-tuned on.
_AUGMENTED = (
  dict(dataset=unless("imagenet", "imagenet_subset")), _FINETUNED,
  dict(augment_exemplars=True, exemplars="mnemonics"),
  dict(augment_exemplars=True, adjust=True),
)  # fmt: skip
_SCHEDULES = ("base", "train", "balance")


def _reads(option: str) -> Callable[[str], bool]:
  """Data sets that have an option; those that are not known may have it."""
  return lambda name: name not in SOURCES or option in SOURCES[name].options


def _to_each(name: str, *schedules: str) -> tuple[str, ...]:
  return tuple(f"{schedule}.{name}" for schedule in schedules)


def _check_seeds(seeds):
  if not seeds:
    raise UserError(
      "seeds", "`seeds` is empty", "name at least one, such as `seeds=0`"
    )
  if len(set(seeds)) < len(seeds):
    raise UserError("seeds", "`seeds` names a seed twice", "name each once")


def _check_rehearsal(text):
  times = re.fullmatch("[0-9]{1,6}", text) and int(text)
  if text not in ("once", "balanced") and not times:
    fix = "use once, balanced, or a whole number of times, such as 4"
    raise UserError("rehearsal", f"`rehearsal={text}` is not known", fix)


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Phase(Declared):
  """What a phase does: settings of `phase.Config`, of the Learner and of a run."""

  exemplars: str = setting(KEPT, "mnemonics",
    "How the exemplars of a class are chosen or learned.", choices=registry.EXEMPLARS)
  init_exemplars: str = setting(KEPT, "herding",
    "Start images of --exemplars=mnemonics.",
    choices=registry.INIT_EXEMPLARS, needs=_LEARNED)
  validate_on: str | None = setting(KEPT, None,
    "Data that validate learned exemplars. The default is new with --recipe=paper and"
    " all with --recipe=tuned.", choices=registry.VALIDATIONS, needs=_LEARNED,
    canonical=lambda s, _: s.validated_on)
  adjust: bool = setting(KEPT, False,
    "Also learn the old exemplars again in every phase, one part validated by the"
    " others.", needs=_NOT_JOINT)
  adjust_parts: int = setting(KEPT, 2,
    "Number of parts that --adjust deals the old exemplars of each class to. The"
    " paper has 2.",
    least=2, most=10**6, needs=dict(adjust=True))
  code_new: bool = setting(KEPT, False,
    "Train on new images as the codec would store them, so that compression artefacts"
    " do not mark old classes.", needs=dict(codec=unless("raw"), **_NOT_JOINT))
  rehearsal: str = setting(KEPT, "once",
    "How often an old exemplar is drawn in an epoch. The number of steps does not"
    " depend on it. once: like a new image; balanced: a class of exemplars as often as"
    " a new class; a number such as 4: that many times as often as a new image.",
    check=_check_rehearsal, needs=_NOT_JOINT, yields_to=("memory", "codec"))
  drift: int = setting(KEPT, 0,
    "Also learn exemplars for this many copies of the model, each trained some epochs"
    " on a simulated next phase of rotated images. No effect in the last phase.",
    least=0, most=100, needs=_LEARNED)
  imitate: bool = setting(KEPT, False,
    "Learn exemplars by differentiating through a simulated next phase. Slow on a CPU."
    " No effect in the last phase.", needs=_LEARNED)
  augment_exemplars: bool = setting(KEPT, True,
    "Augment exemplars while they are learned.", needs=_LEARNED_OR_ADJUSTED)
  exemplar_chunk: int | None = setting(KEPT, None,
    "Learn the exemplars of this many classes at a time, to save device memory. The"
    " default is all at once.", **_COUNT, needs=_LEARNED_OR_ADJUSTED)
  transfer: str = setting(METHOD, "none",
    "Weight transfer: after the first phase, train scales and shifts over frozen"
    " weights.", choices=registry.TRANSFERS, needs=_NOT_JOINT)
  finetune: str = setting(METHOD, "none",
    "Balanced fine-tune on the memory at the end of each phase. The default with"
    " --method=e2e is all.", choices=registry.FINETUNES, needs=_NOT_JOINT)
  stream: str = setting(MACHINES, "auto",
    "Whether images stay on the host or on a disk and stream to the device during"
    " training. The numbers are the same.", choices=registry.STREAMS, numbers=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Recipe(Phase):
  """What else the Learner and a run have in common."""

  distill: bool = setting(METHOD, True,
    "Distil the model of the previous phase into the new one.", to="method")
  less_forget: float = setting(METHOD, 5.0,
    "λ_base of LUCIR: weight of the loss that keeps features close to those of the old"
    " model. The default is 5, and 10 for photographs.", least=0,
    needs=dict(method="lucir", distill=True), to="method.less_forget_base")
  reference_code: bool = setting(METHOD, False,
    "Follow the code that made the published numbers. LUCIR averages its margin loss"
    " over classes and starts σ at 1 (otherwise: a sum, and 10). LwF, iCaRL, BiC and"
    " E2E keep the last ReLU. On with --preset=paper.",
    needs=_NOT_JOINT, to="method")
  recipe: str = setting(KEPT, "tuned",
    "How exemplars are learned.", choices=registry.RECIPES, needs=_SCORED, to="bilevel")
  scope: str | None = setting(KEPT, None,
    "What the inner loop trains on the exemplars. The default is the recipe's.",
    choices=registry.SCOPES, needs=_LEARNED_OR_ADJUSTED, to="bilevel")
  max_change: int | None = setting(KEPT, None,
    "Trust region: the largest change of a pixel from its start image, in grey levels."
    " Each adjustment may move it as far again. The default is the recipe's.",
    least=0, most=255, needs=_LEARNED_OR_ADJUSTED, to="bilevel")
  frequencies: int | None = setting(KEPT, None,
    "Change only the lowest frequencies of 8×8 blocks: 1 is their brightness, 15 is"
    " all. The default is no limit.",
    least=1, most=15, needs=_LEARNED_OR_ADJUSTED, to="bilevel")
  meta_epochs: int | None = setting(KEPT, None,
    "Epochs of the outer loop. The default is the recipe's.",
    **_COUNT, needs=_SCORED, to="bilevel.epochs")
  epochs: int = setting(TRAINING, 160,
    "Epochs of every phase after the first.", **_COUNT, to="train")
  base_epochs: int = setting(TRAINING, 160,
    "Epochs of the first phase.", **_COUNT, needs=dict(base_model=None),
    to="base.epochs")
  base_model: str | None = setting(FILES, None,
    "Published model to start from instead of training the first phase, such as"
    " results/base_models/cifar100_resnet32_lucir. Its classes, network and kind of"
    " head must be those of the run.", check=base_models.about,
    canonical=lambda _, path: path and base_models.about(path)["weights_sha256"])
  learning_rate: float = setting(TRAINING, 0.1,
    "Initial or highest learning rate of SGD, see --curve.",
    above=0, to=_to_each("learning_rate", "base", "train"))
  base_learning_rate: float | None = setting(TRAINING, None,
    "Learning rate of the first phase. The default is --learning_rate if that is given,"
    " or else the preset's.", above=0, needs=dict(base_model=None),
    yields_to=("learning_rate",), to="base.learning_rate",
    canonical=lambda s, rate: None if rate == s.learning_rate else rate)
  weight_decay: float = setting(TRAINING, 5e-4,
    "L2 regularisation.", least=0, to=_to_each("weight_decay", *_SCHEDULES))
  batch_size: int = setting(TRAINING, 128,
    "Images per training step.",
    least=1, most=2**16, to=_to_each("batch_size", *_SCHEDULES))
  curve: str = setting(TRAINING, "steps",
    "Learning-rate schedule. That of the fine-tune is constant.",
    choices=registry.CURVES, to=_to_each("curve", "base", "train"))
  milestones: tuple[float, ...] = setting(TRAINING, (0.5, 0.75),
    "Parts of the schedule after which --curve=steps divides the rate by 10.",
    above=0, below=1, to=_to_each("milestones", "base", "train"), command=False)
  finetune_epochs: int = setting(TRAINING, 50,
    "Epochs of the fine-tune.", **_COUNT, needs=_FINETUNED, to="balance.epochs")
  finetune_learning_rate: float = setting(TRAINING, 0.01,
    "Constant learning rate of the fine-tune.",
    above=0, needs=_FINETUNED, to="balance.learning_rate")
  dtype: str = setting(TRAINING, "float32",
    "Type of activations. Parameters, statistics, losses and exemplars stay float32.",
    choices=registry.DTYPES, to="network")
  remat: bool = setting(TRAINING, False,
    "Store only the input of each block for the backward pass and recompute the rest:"
    " a third more work, the same numbers. Saves memory on GPU and TPU, not on CPUs.",
    numbers=False, to="network")


@dataclasses.dataclass(frozen=True)
class Settings(Recipe, Complete):
  """A run, as config.json stores it."""

  dataset: str = setting(PROTOCOL, command=False, positional=True)
  preset: str = setting(PROTOCOL,
    help="The settings to start from; single flags override them. paper also turns on"
    " --adjust, --transfer and --finetune with --exemplars=mnemonics.",
    choices=registry.PRESETS, positional=True)
  phases: int = setting(PROTOCOL, 5,
    "Number of phases after the first; the other classes are spread evenly over them."
    " With 0 only the first phase is learned, for example to publish its model.",
    least=0, to="stream")
  base_classes: int | None = setting(PROTOCOL, None,
    "Classes of the first phase. The default is half of all. With 0 all phases have"
    " equally many classes.", least=0, to="stream")
  classes: int | None = setting(PROTOCOL, None,
    "Learn only the first classes of the order, to try something on a few phases. The"
    " default is all.", least=1, to="stream")
  order_seed: int = setting(PROTOCOL, 1993,
    "Seed of the class order.", **_SEED, to="stream")
  seeds: tuple[int, ...] = setting(PROTOCOL, (0,),
    "Train once per seed, such as 0,1,2. Seeds change initialisation, sampling and"
    " augmentation, not the class order. Reports show the mean and its 95 % confidence"
    " interval.", **_SEED, check=_check_seeds)
  images_per_class: int | None = setting(PROTOCOL, None,
    "Train on only the first images of each class, for quick trials.",
    least=1, to="stream")
  tuning_fraction: float | None = setting(PROTOCOL, None,
    "Test on this share of the training images of each class and train on the others,"
    " to choose settings without a look at the test images.", above=0, below=1)
  method: str = setting(METHOD, "lucir",
    "The base method. In brackets is the read-out that measures its results.",
    choices=registry.METHODS)
  memory: str = setting(KEPT, "per_class:20",
    "Memory budget. per_class:20 keeps 20 images of every class; total:2000 keeps 2000"
    " images of all classes; per_class_bytes:61440 and total_bytes:6144000 keep as many"
    " as fit.", check=memory_lib.parse)
  codec: str = setting(KEPT, "raw",
    "How exemplars are stored; a quality from 1 to 100 follows, as in jpeg:75. Images"
    f" are decoded once a phase. {registry.choices(registry.CODECS)}.",
    check=memory_lib.parse_codec)
  net: str = setting(TRAINING, "resnet32", "The network.", choices=registry.NETWORKS)
  augment: str = setting(TRAINING, "crop_flip",
    "Augmentation of training images. ImageNet is trained on random parts of its"
    " photographs anyway; this is for its exemplars.",
    choices=registry.AUGMENTATIONS, needs=_AUGMENTED, always_named=True)
  data: str | None = setting(READING, None,
    "Directory with <class>/ or train/<class>/, and perhaps val/<class>/.",
    needs=dict(dataset="folder"))
  image_size: int | None = setting(READING, None,
    "Side of the square images, in pixels.",
    least=1, needs=dict(dataset=_reads("image_size")))
  val_fraction: float | None = setting(READING, None,
    "Share of each class to test on if there is no val/.",
    above=0, below=1, needs=dict(dataset=_reads("val_fraction")))
# fmt: on

  @property
  def title(self) -> str:
    """What the run does with its data: method, exemplars, memory."""
    kept = self.memory if self.codec == "raw" else f"{self.memory} {self.codec}"
    return " · ".join([self.method, self.exemplars, kept])

  @property
  def validated_on(self) -> str:
    """The data that validate new exemplars: as asked for, or else the recipe's."""
    return self.validate_on or ("new" if self.recipe == "paper" else "all")

  def identity(self) -> dict[str, Any]:
    """All that decides the results, in the order in which it enters a hash."""
    values = super().identity()
    return {name: values[name] for name in defaults(type(self)) if name in values}

  def name(self, checksum: int, *, with_place: bool = False) -> str:
    """Name of the work directory: equal for equal results.

    Args:
      checksum: of the data.
      with_place: whether it depends on the directory of the data, as it once did.
    """
    # Settings that come later leave the names of runs without them as they are.
    usual = defaults(type(self))
    chosen = {k: v for k, v in self.identity().items() if v != usual[k]}
    if not with_place:
      chosen.pop("data", None)
    digest = hashlib.sha256(json.dumps([chosen, checksum, NUMERICS]).encode())
    kept = self.memory.replace(":", "-")
    kept += "" if self.codec == "raw" else f"_{self.codec.replace(':', '-')}"
    words = [self.dataset, self.method, self.exemplars, kept, f"n{self.phases}"]
    return "_".join([*words, digest.hexdigest()[:8]])


# The order in which the first 52 settings enter a hash. Names of run directories and
# of cells of tables depend on it: never change it. Later settings follow by name.
_FIRST = (
  *("dataset", "preset", "method", "exemplars", "init_exemplars", "validate_on"),
  *("augment_exemplars", "adjust", "adjust_parts", "recipe", "scope", "max_change"),
  *("frequencies", "drift", "imitate", "meta_epochs", "memory", "codec", "code_new"),
  *("rehearsal", "transfer", "finetune", "distill", "phases", "base_classes"),
  *("classes", "order_seed", "seeds", "net", "epochs", "base_epochs", "base_model"),
  *("learning_rate", "base_learning_rate", "weight_decay", "batch_size", "curve"),
  *("milestones", "finetune_epochs", "finetune_learning_rate", "augment"),
  *("images_per_class", "tuning_fraction", "data", "image_size", "val_fraction"),
  *("exemplar_chunk", "dtype", "remat", "stream", "less_forget", "reference_code"),
)


def defaults(group: type[Settings] = Settings) -> dict[str, Any]:
  """The defaults of all settings, in the order in which settings enter a hash."""
  found = {field.name: field.default for field in declared(group)}
  return {name: found[name] for name in [*_FIRST, *sorted({*found} - {*_FIRST})]}


# fmt: off
@dataclasses.dataclass(frozen=True, kw_only=True)
class Computing(Declared):
  """Where a command computes."""

  devices: str = setting(MACHINES, "all",
    "Devices that share every batch: all, or a number of them. On a CPU that many of"
    " its cores become devices. The default there is one device, or one per core where"
    " no C++ compiler is found, which is faster then.")
  coordinator: str | None = setting(MACHINES, None,
    "For a run over several machines: host:port of the first process, or auto on Slurm."
    " Not needed on TPU pods. Every process gets the same command.")
  process_id: int | None = setting(MACHINES, None,
    "Number of this process from 0, unless --coordinator=auto.", least=0)
  num_processes: int | None = setting(MACHINES, None,
    "Number of processes, unless --coordinator=auto.", least=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Command(Computing):
  """What a command that learns does besides: files and devices."""

  workdir: str | None = setting(FILES, None,
    "Where results go. The default is a directory below runs/ named after the settings;"
    " running the same command again uses what has finished there.")
  fresh: bool = setting(FILES, False,
    "Start over in a new directory; the old one stays. To continue there, name it with"
    " --workdir.")
  checkpoint_every: float = setting(FILES, 180.0,
    "Seconds between checkpoints within a phase. Every phase ends with one, too. The"
    " same command continues from the newest.", least=0)
  keep: int | None = setting(FILES, None,
    "Number of checkpoints of phases to keep for each seed, the newest ones. The default"
    " is all.", least=1)
  patience: float = setting(FILES, 25.0,
    "Seconds that a run has to save after Ctrl-C or SIGTERM; more if its steps and saves"
    " take longer. They start again when saving starts.", least=0)
  base_models: str | None = setting(FILES, None,
    "Directory of shared models of the first phase. Runs that name the same one train"
    " those they have in common only once; the numbers do not change. Published models"
    " are found there, too.")
  tensorboard: bool = setting(FILES, True, "Also write TensorBoard events.")
  report_every_phase: bool = setting(FILES, False,
    "Write report.html after every phase. `experiments.report` writes it at any time.")
# fmt: on
