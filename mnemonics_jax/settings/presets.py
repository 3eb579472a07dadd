"""Presets: the values of settings that are not given, by data set.

A data set without presets of its own has those of CIFAR-100. `Learner` starts from
"learner", because it does not know which data will come.
"""

from collections.abc import Mapping, Sequence
import math
from typing import Any

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import registry
from mnemonics_jax.settings.declare import declared
from mnemonics_jax.settings.settings import Settings

Presets = Mapping[str, Mapping[str, Any]]

# The stages of the paper: exemplars that are chosen and nothing else; or mnemonics.
BASELINE = dict(
  exemplars="herding", adjust=False, transfer="none", finetune="none"
)
COMPONENTS = dict(transfer="in_out", finetune="all")
MNEMONICS = dict(exemplars="mnemonics", adjust=True, **COMPONENTS)

# The defaults of `Settings` are the rest of the paper's settings.
PAPER = dict(
  init_exemplars="random", reference_code=True, recipe="paper", **MNEMONICS
)
PAPER_IMAGENET = PAPER | dict(
  net="resnet18",
  epochs=90,
  base_epochs=90,
  milestones=(1 / 3, 2 / 3),
  less_forget=10.0,
  augment="resized_crop",
  image_size=224,
)


def of_size(memory: str, image_shape: Sequence[int]) -> str:
  """A preset's memory for images of some size: the same number of raw images.

  >>> of_size("per_class_bytes:61440", (64, 64, 3)), of_size("total:9", (64, 64, 3))
  ('per_class_bytes:245760', 'total:9')
  """
  kind, _, size = memory.partition(":")
  if kind != "per_class_bytes":
    return memory
  return f"{kind}:{int(size) // (32 * 32 * 3) * math.prod(image_shape)}"


def _raw(preset: Mapping[str, Any], side: int) -> str:
  """The bytes that the images which a preset keeps of a class take as raw images."""
  kept = preset.get("memory", Settings.memory)
  images = memory_lib.parse(kept).allowance(1)
  return f"per_class_bytes:{images * side * side * 3}"


def _best(short: Mapping[str, Any], side: int, **changes: Any):
  """`short` with the memory that docs/choosing.md recommends, in as many bytes.

  Args:
    short: settings.
    side: pixels of the images.
    **changes: to the schedule, since more exemplars make longer epochs.
  """
  kept = dict(exemplars="herding", memory=_raw(short, side), codec="jpeg:90")
  return {**short, **kept, **changes}


_FAST = dict(
  exemplars="herding",
  learning_rate=0.05,
  base_learning_rate=0.2,
  curve="one_cycle",
  finetune="head",
  finetune_epochs=10,
)
# Of everything, only to see it work. results/defaults tells why `head`.
_SMOKE = dict(
  epochs=1, base_epochs=2, finetune_epochs=1, meta_epochs=1, finetune="head"
)

_CIFAR100_SHORT = dict(
  net="resnet8",
  exemplars="herding",  # docs/choosing.md tells why.
  epochs=10,
  base_epochs=20,
  curve="cosine",  # results/studies/curves.md tells why.
  rehearsal="4",  # Of 20 raw images; results/studies/drawing.md tells why.
  finetune="head",  # results/defaults tells why.
  finetune_epochs=10,
)
_CIFAR100 = {
  "paper": PAPER,
  "fast": dict(_FAST, epochs=10, base_epochs=40),
  "short": _CIFAR100_SHORT,
  # Drawing each more often did harm where five times as many are kept.
  "best": _best(
    _CIFAR100_SHORT, 32, epochs=5, finetune_epochs=2, rehearsal="once"
  ),
  "smoke": dict(_SMOKE, net="resnet8", images_per_class=50),
}

_DIGITS = dict(
  net="resnet8",
  augment="crop",
  base_classes=5,
  phases=5,
  memory="per_class:5",
  batch_size=64,
)
_DIGITS_TUNED = dict(_DIGITS, finetune="head")  # results/defaults tells why.
_DIGITS_SHORT = dict(
  _DIGITS_TUNED, epochs=30, base_epochs=30, finetune_epochs=20
)

_FOLDER = dict(
  method="icarl",  # results/defaults tells why.
  memory="per_class:10",
  val_fraction=0.2,
  net="resnet8",
  augment="resized_crop",
  image_size=64,
  less_forget=10.0,  # Of LUCIR; as on ImageNet.
  finetune="head",
  batch_size=32,
)
_FOLDER_SHORT = dict(_FOLDER, epochs=20, base_epochs=40, finetune_epochs=20)

# Of whole photographs, which take longer to decode than to learn here.
_SMALL_IMAGENET = dict(
  net="resnet8",
  milestones=PAPER_IMAGENET["milestones"],
  augment="resized_crop",
  image_size=64,
  less_forget=10.0,
  finetune="head",  # results/defaults tells why.
)
_FAST_IMAGENET = dict(
  _FAST,
  net="resnet18",
  augment="resized_crop",
  image_size=224,
  less_forget=10.0,
  epochs=11,
  base_epochs=22,
)
_IMAGENET_SHORT = dict(
  _SMALL_IMAGENET,
  exemplars="herding",
  epochs=10,
  base_epochs=20,
  finetune_epochs=10,
  images_per_class=100,
)
_IMAGENET = {
  "paper": PAPER_IMAGENET,
  "fast": _FAST_IMAGENET,
  "short": _IMAGENET_SHORT,
  "best": _best(_IMAGENET_SHORT, 64),
  "smoke": dict(
    _SMALL_IMAGENET,
    **_SMOKE,
    memory="per_class:5",
    batch_size=32,
    images_per_class=20,
  ),
}

PRESETS: Mapping[str, Presets] = {
  "cifar100": _CIFAR100,
  "digits": {
    "paper": dict(_DIGITS, **PAPER, batch_size=128),
    "fast": dict(
      _DIGITS_TUNED,
      epochs=20,
      base_epochs=40,
      curve="one_cycle",
      finetune_epochs=20,
    ),
    "short": _DIGITS_SHORT,
    "best": _best(_DIGITS_SHORT, 8),
    "smoke": dict(_DIGITS_TUNED, epochs=2, base_epochs=3, finetune_epochs=2),
  },
  "folder": {
    "paper": dict(PAPER_IMAGENET, val_fraction=0.2),
    "fast": dict(_FAST_IMAGENET, val_fraction=0.2),
    "short": _FOLDER_SHORT,
    "best": _best(_FOLDER_SHORT, 64),
    "smoke": {**_FOLDER, **_SMOKE},
  },
  "imagenet": _IMAGENET,
  "imagenet_subset": _IMAGENET,
  # Drawing exemplars more often was not measured for classes that come call by call.
  "learner": {
    name: {**values, "rehearsal": "once"} for name, values in _CIFAR100.items()
  },
}


def of(dataset: str) -> Presets:
  """By name of a preset the settings that differ from `Settings`' defaults."""
  return PRESETS.get(dataset, _CIFAR100)


def values(
  dataset: str, preset: str, given: Mapping[str, Any]
) -> dict[str, Any]:
  """What a preset says beside the settings that were given.

  >>> values("digits", "paper", {"exemplars": "herding"})["finetune"]
  'none'
  >>> given = {"exemplars": "herding", "method": "e2e"}
  >>> values("digits", "paper", given)["finetune"]  # It belongs to the method.
  'all'
  >>> values("folder", "best", {"image_size": 224})["memory"]
  'per_class_bytes:1505280'

  Args:
    dataset: name of the data set.
    preset: name of the preset.
    given: settings that will replace the preset's.
  """
  found = dict(of(dataset)[preset])
  for field in declared(Settings):
    if given.keys() & field.metadata["yields_to"]:
      found.pop(field.name, None)
  if preset == "best" and given.get("image_size") is not None:
    found["memory"] = _raw(of(dataset)["short"], given["image_size"])
  method = given.get("method")
  if method == "joint":
    # The upper bound replays real data; exemplars only serve its nme read-out.
    found["exemplars"] = "herding"
  if preset == "paper" and {**found, **given}["exemplars"] != "mnemonics":
    # Its stages are those of mnemonics; chosen exemplars are its baselines.
    found |= {name: BASELINE[name] for name in MNEMONICS if name != "exemplars"}
  if method in registry.METHODS and registry.METHODS[method].finetune != "none":
    found["finetune"] = registry.METHODS[method].finetune
  return found


def resolve(dataset: str, preset: str, given: Mapping[str, Any]) -> Settings:
  """The settings of a run: as given, or else the preset's, or else the default."""
  found = {**values(dataset, preset, given), **given}
  settings = Settings(dataset, preset, **found)
  settings.refuse_idle(given)
  return settings
