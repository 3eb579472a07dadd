"""What settings are where no flag says otherwise: presets by data set.

A data set that has none of its own here has those of CIFAR-100.
"""

from collections.abc import Mapping
from typing import Any

from experiments.paper import BASELINE, MNEMONICS, PAPER, PAPER_IMAGENET, STAGES
from experiments.settings import Settings
from mnemonics_jax import memory, registry

Presets = Mapping[str, Mapping[str, Any]]


def _best(short: Mapping[str, Any], side: int, **changes: Any):
  """`short` with the memory that docs/choosing.md recommends, in as many bytes.

  Args:
    short: settings.
    side: pixels of the images.
    **changes: to the schedule, since more exemplars make longer epochs.
  """
  kept = dict(exemplars="herding", memory=_raw(short, side), codec="jpeg:90")
  return {**short, **kept, **changes}


def _raw(short: Mapping[str, Any], side: int) -> str:
  """The bytes that the images which `short` keeps of a class take as they are."""
  images = memory.parse(short.get("memory", Settings.memory)).allowance(1)
  return f"per_class_bytes:{images * side * side * 3}"


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
# Where five times as many are kept, to draw each more often did harm.
_CIFAR100_BEST = _best(
  _CIFAR100_SHORT, 32, epochs=5, finetune_epochs=2, rehearsal="once"
)
_CIFAR100 = {
  "paper": PAPER,
  "fast": dict(
    net="resnet32",
    exemplars="herding",
    epochs=10,
    base_epochs=40,
    learning_rate=0.05,
    base_learning_rate=0.2,
    curve="one_cycle",
    finetune="head",
    finetune_epochs=10,
  ),
  "short": _CIFAR100_SHORT,
  "best": _CIFAR100_BEST,
  "smoke": dict(
    net="resnet8",
    finetune="head",
    epochs=1,
    base_epochs=2,
    finetune_epochs=1,
    meta_epochs=1,
    images_per_class=50,
  ),
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
  net="resnet18",
  exemplars="herding",
  augment="resized_crop",
  image_size=224,
  less_forget=10.0,
  finetune="head",
  epochs=11,
  base_epochs=22,
  learning_rate=0.05,  # As on CIFAR-100.
  base_learning_rate=0.2,
  curve="one_cycle",
  finetune_epochs=10,
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
    memory="per_class:5",
    epochs=1,
    base_epochs=2,
    finetune_epochs=1,
    meta_epochs=1,
    batch_size=32,
    images_per_class=20,
  ),
}

PRESETS: Mapping[str, Presets] = {
  "cifar100": _CIFAR100,
  "digits": {
    "paper": dict(
      _DIGITS,
      batch_size=128,
      reference_code=True,
      recipe="paper",
      init_exemplars="random",
      **MNEMONICS,
    ),
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
    "smoke": dict(
      _FOLDER, epochs=1, base_epochs=2, finetune_epochs=1, meta_epochs=1
    ),
  },
  "imagenet": _IMAGENET,
  "imagenet_subset": _IMAGENET,
}

# What Table S1 keeps of all classes together, if it is not 20 images of each.
TOTALS = {"digits": "total:20"}


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
  if "learning_rate" in given:  # It is that of phase 0, too.
    found.pop("base_learning_rate", None)
  if {"memory", "codec"} & given.keys():  # 4 times is for 20 raw images.
    found.pop("rehearsal", None)
  if preset == "best" and given.get("image_size") is not None:
    found["memory"] = _raw(of(dataset)["short"], given["image_size"])
  method = given.get("method")
  if method == "joint":
    # The upper bound replays real data; exemplars only serve its nme read-out.
    found["exemplars"] = "herding"
  if preset == "paper" and {**found, **given}["exemplars"] != "mnemonics":
    # Its stages are those of mnemonics; chosen exemplars are its baselines.
    found |= {name: BASELINE[name] for name in STAGES}
  if method is not None and registry.METHODS[method].finetune != "none":
    found["finetune"] = registry.METHODS[method].finetune
  return found
