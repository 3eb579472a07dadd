"""The paper's settings for CIFAR-100 and ImageNet, and how a run differs from them.

A cell of the paper is a run: network and schedule, the protocol, and the stages
of its row. What a run is compared with is the cell it stands beside.
"""

from collections.abc import Mapping
from typing import Any

from mnemonics_jax.settings import Settings
from mnemonics_jax.settings.presets import (
  BASELINE,
  COMPONENTS,
  MNEMONICS,
  PAPER,
  PAPER_IMAGENET,
)
from mnemonics_jax.settings.settings import defaults

METHODS = ("lwf", "icarl", "bic", "lucir")

_BY_DATASET = {
  "cifar100": PAPER,
  "folder": PAPER_IMAGENET,
  "imagenet": PAPER_IMAGENET,
  "imagenet_subset": PAPER_IMAGENET,
}
_BUDGETS = {
  "cifar100": ("per_class:20", "total:2000"),
  "folder": ("per_class:20", "total:2000", "total:20000"),
  "imagenet": ("per_class:20", "total:20000"),
  "imagenet_subset": ("per_class:20", "total:2000"),
}

# These change no number, or only repeat: seeds.
_FREE = (
  "dataset",
  "preset",
  "seeds",
  "data",
  "val_fraction",
  "remat",
  "stream",
)
# Explicit values that mean the same as the paper's.
_SYNONYMS = {
  "base_classes": {"cifar100": 50, "imagenet": 500, "imagenet_subset": 50},
  "classes": {"cifar100": 100, "imagenet": 1000, "imagenet_subset": 100},
  "base_learning_rate": dict.fromkeys(_BY_DATASET, Settings.learning_rate),
  "scope": dict.fromkeys(_BY_DATASET, "all"),
  "meta_epochs": dict.fromkeys(_BY_DATASET, 50),
  "validate_on": dict.fromkeys(_BY_DATASET, "new"),
}
_PHASES = (5, 10, 25)


def departures(
  settings: Settings, cell: Mapping[str, Any] | None = None
) -> list[str]:
  """How a run differs from a cell of the paper, in words.

  Args:
    settings: the run.
    cell: what makes the row it stands in; by default the cell of the paper that
      is nearest among those of the same method and kind of exemplars.
  """
  if settings.dataset not in _BY_DATASET:
    return [f"dataset {settings.dataset} (paper: CIFAR-100 and ImageNet)"]
  if cell is not None:
    return _differences(settings, cell)
  cells = _cells(settings)
  other = [c for c in cells if c["exemplars"] != settings.exemplars]
  found = [_differences(settings, c) for c in cells if c not in other]
  return min(found or [_differences(settings, c) for c in other], key=len)


def _cells(settings: Settings) -> list[dict[str, Any]]:
  """The cells of the paper with a method: Tables 1 and S1, 2, S2, Figure 4."""
  budgets = _BUDGETS[settings.dataset]
  row = dict(method=settings.method)
  if settings.method == "joint":
    return [row | BASELINE | dict(memory=settings.memory)]
  if settings.method not in METHODS:
    row = dict(method="lucir")
  found = [
    {**row, **stages, "memory": memory}
    for stages in (BASELINE, MNEMONICS)
    for memory in budgets
  ]
  if row["method"] == "lucir":
    found += [
      {**row, **COMPONENTS, "exemplars": kind, "adjust": adjust}
      for kind in ("random", "herding", "mnemonics")
      for adjust in (False, True)
    ]
    found.append({**row, **MNEMONICS, "distill": False})
  return found


def _differences(settings: Settings, cell: Mapping[str, Any]) -> list[str]:
  """The settings that matter to a run and are not those of a cell."""
  paper = defaults() | {**_BY_DATASET[settings.dataset], **cell}
  if settings.phases in _PHASES:
    paper["phases"] = settings.phases
  for name, by_dataset in _SYNONYMS.items():
    if getattr(settings, name) == by_dataset.get(settings.dataset):
      paper[name] = getattr(settings, name)
  ignored = {*_FREE, *settings.idle}
  return [
    _in_words(name, getattr(settings, name), value)
    for name, value in paper.items()
    if name not in ignored and getattr(settings, name) != value
  ]


def _in_words(name: str, value: Any, paper: Any) -> str:
  if name == "method":
    paper = ", ".join(METHODS)
  elif name == "phases":
    paper = ", ".join(map(str, _PHASES))
  return f"{name} {value}" + ("" if paper is None else f" (paper: {paper})")
