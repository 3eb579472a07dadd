"""What a map of features shows: which phases, classes and images of a run."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from mnemonics_jax.memory.selection import normalize
from mnemonics_jax.runs.finished import Run

_COLORED = 7  # Classes that have a colour ...
_WORST = 3  # ... of which so many are recognised least in the end.
_MIN_CLASSES = 3  # A map of two says little.
_MAX_OTHERS = 150
_MAX_ROWS = 4


class Panel(NamedTuple):
  """Features of one run after one phase.

  Attributes:
    row: which of the runs, from 0.
    phase: the phase.
    features: [n, d], of test images, of exemplars, of other classes.
    labels: classes of the n, in the learned order.
    exemplar: which of the n are exemplars.
    other: which of the n stand for a whole class without a colour.
  """

  row: int
  phase: int
  features: np.ndarray
  labels: np.ndarray
  exemplar: np.ndarray
  other: np.ndarray

  @property
  def classes(self) -> np.ndarray:
    """The classes that have a colour."""
    return np.unique(self.labels[~self.other])

  def take(self, rows: np.ndarray) -> "Panel":
    """The panel with some of the n."""
    return Panel(self.row, self.phase, *(array[rows] for array in self[2:]))


def mapped_runs(runs: Sequence[Run]) -> list[Run]:
  """The first runs that have features and learn the same classes alike."""
  kinds, compared = [], ("dataset", "class_names", "classes_per_phase")
  for run in runs:
    if phases := mapped_phases(run):
      size = _features(run, phases[0])["test"].shape[1]
      kinds.append((run, [phases, size, *map(run.results.get, compared)]))
  return [run for run, kind in kinds if kind == kinds[0][1]][:_MAX_ROWS]


def mapped_phases(run: Run) -> list[int]:
  """The first phase with features of enough classes, one between, the last."""
  found = [
    phase
    for phase in range(len(run.results["classes_per_phase"]))
    if len(np.unique(_features(run, phase).get("test_labels", ())))
    >= _MIN_CLASSES
  ]
  places = sorted({0, len(found) // 2, len(found) - 1}) if found else ()
  return [found[place] for place in places]


def colored_classes(runs: Sequence[Run]) -> list[int]:
  """Which classes have a colour in a map of runs that learn alike.

  Those that are recognised least in the end, by the mean of the runs; then two
  of the first phase, two of the last, and others as long as there are colours.
  """
  last = mapped_phases(runs[0])[-1]
  saved = [np.unique(_features(run, last)["test_labels"]) for run in runs]
  classes = [c for c in saved[0].tolist() if all(c in s for s in saved)]
  shares = np.mean([recognised(run) for run in runs], axis=0)
  worst = sorted(classes, key=lambda c: shares[c])[:_WORST]
  rest = [c for c in classes if c not in worst]
  groups = runs[0].results["classes_per_phase"]
  old = [c for c in rest if c < groups[0]]
  new = [c for c in rest if c >= sum(groups[:-1])]
  return sorted(
    [*dict.fromkeys([*worst, *old[:2], *new[:2], *rest])][:_COLORED]
  )


def recognised(run: Run) -> np.ndarray:
  """Share of each class's test images, by the reported read-out, in the end."""
  results = run.results
  name = f"confusion/final/{results['readout']}"
  last = len(results["classes_per_phase"]) - 1
  counts = run.arrays(results["seeds"][0], last, name).get(name)
  if counts is None:
    return np.zeros(len(results["class_names"]))
  return counts.diagonal() / np.maximum(counts.sum(axis=1), 1)


def panels(run: Run, classes: Sequence[int], row: int = 0) -> list[Panel]:
  """The first seed's panels, in which some classes have a colour."""
  found = []
  for phase in mapped_phases(run):
    arrays = _features(run, phase)
    parts = []
    for kind in ("test", "exemplars"):
      rows = np.isin(arrays[f"{kind}_labels"], classes)
      parts.append((arrays[kind][rows], arrays[f"{kind}_labels"][rows]))
    parts.append(_other_classes(arrays, classes))
    sizes = [len(labels) for _, labels in parts]
    found.append(
      Panel(
        row,
        phase,
        np.concatenate([features for features, _ in parts]),
        np.concatenate([labels for _, labels in parts]),
        np.repeat([False, True, False], sizes),
        np.repeat([False, False, True], sizes),
      )
    )
  return found


def _features(run: Run, phase: int) -> dict[str, np.ndarray]:
  """What the first seed saved; empty when features were not."""
  arrays = run.arrays(run.results["seeds"][0], phase, "features/")
  names = ("test", "test_labels", "exemplars", "exemplars_labels")
  if any(f"features/{name}" not in arrays for name in names):
    return {}
  return {name.removeprefix("features/"): a for name, a in arrays.items()}


def _other_classes(
  arrays: Mapping[str, np.ndarray], classes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
  """The mean direction of each class without a colour, and these classes."""
  if (
    "others" in arrays
  ):  # Of earlier versions, which kept nothing else of them.
    return arrays["others"], arrays["others_labels"]
  labels = np.setdiff1d(arrays["test_labels"], classes)
  evenly = np.linspace(0, len(labels) - 1, min(len(labels), _MAX_OTHERS))
  labels = labels[evenly.round().astype(int)]
  unit = normalize(arrays["test"].astype(np.float32))
  means = [unit[arrays["test_labels"] == c].mean(axis=0) for c in labels]
  return np.reshape(means, (len(labels), unit.shape[1])), labels


def thin(found: Sequence[Panel], most: int) -> list[Panel]:
  """About `most` points in all: the same number for every class of a panel.

  Up to a third of them are exemplars, the first ones; test images are taken
  at even steps. Other classes, a point each, all stay.
  """
  groups = sum(len(panel.classes) for panel in found)
  each = max(most // max(groups, 1), 3)
  out = []
  for panel in found:
    rows = [np.flatnonzero(panel.other)]
    for label in panel.classes:
      members = (panel.labels == label) & ~panel.other
      exemplars = np.flatnonzero(members & panel.exemplar)[: each // 3]
      real = np.flatnonzero(members & ~panel.exemplar)
      count = min(len(real), each - len(exemplars))
      steps = np.linspace(0, len(real) - 1, count).round().astype(int)
      rows += [real[steps], exemplars]
    out.append(panel.take(np.concatenate(rows)))
  return out
