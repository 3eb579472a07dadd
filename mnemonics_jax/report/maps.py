"""Maps of features: test images and exemplars of a few classes in one plane."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
import numpy as np

from mnemonics_jax.memory.selection import normalize
from mnemonics_jax.report.drawing import COLORS, Drawing, number, shorten
from mnemonics_jax.report.labels import labels
from mnemonics_jax.runs.finished import Run

# A panel for the first phase in which this many of the mapped classes are seen.
_PANELS = (3, 5, 7)
_MAX_ROWS = 4
# t-SNE of a thousand points takes seconds.
_MAX_POINTS, _MAX_POINTS_PER_ROW = 1500, 900
_MIN_POINTS = 10
_GREY = "0.68"  # Of classes that have no colour.


class Panel(NamedTuple):
  """Features of one run after one phase.

  Attributes:
    row: which of the runs, from 0.
    phase: the phase.
    features: [n, d], of test images, of exemplars, of other classes.
    labels: classes of the n, in the learned order.
    exemplar: which of the n are exemplars.
    other: which of the n stand for a whole class that is not mapped.
  """

  row: int
  phase: int
  features: np.ndarray
  labels: np.ndarray
  exemplar: np.ndarray
  other: np.ndarray

  @property
  def classes(self) -> np.ndarray:
    """The classes that are mapped."""
    return np.unique(self.labels[~self.other])

  def take(self, rows: np.ndarray) -> "Panel":
    """The panel with some of the n."""
    return Panel(self.row, self.phase, *(array[rows] for array in self[2:]))


def embed(features: np.ndarray) -> np.ndarray:
  """t-SNE of directions, [n, d] -> [n, 2]; the same for the same input."""
  # Imported here: it takes seconds, and runs without features need none of it.
  from openTSNE import TSNE

  x = normalize(features.astype(np.float64))
  tsne = TSNE(
    perplexity=min(20, (len(x) - 1) // 3),
    initialization="pca",
    neighbors="exact",
    negative_gradient_method="bh",
    early_exaggeration_iter=150,
    n_iter=400,
    n_jobs=1,
    random_state=0,
  )
  return np.asarray(tsne.fit(x))


def feature_map(run: Run) -> Iterator[Drawing]:
  """A run's panels beside each other."""
  yield from _map("feature_map", [run], [run.results["title"]])


def comparison_map(runs: Sequence[Run]) -> Iterator[Drawing]:
  """One row of panels per run, all in one embedding."""
  rows = mapped_runs(runs)
  if len(rows) > 1:
    names = dict(zip(map(id, runs), labels(runs), strict=True))
    yield from _map("comparison_map", rows, [names[id(run)] for run in rows])


def mapped_runs(runs: Sequence[Run]) -> list[Run]:
  """The first runs that have features and learn the same classes alike."""
  kinds, compared = [], ("dataset", "class_names", "classes_per_phase")
  for run in runs:
    found = panels(run)
    if found:
      size = found[0].features.shape[1]
      kinds.append((run, [size, *map(run.results.get, compared)]))
  return [run for run, kind in kinds if kind == kinds[0][1]][:_MAX_ROWS]


def panels(run: Run, row: int = 0) -> list[Panel]:
  """The first seed's panels; empty when features were not saved."""
  found, seed = [], run.results["seeds"][0]
  for phase in range(len(run.results["classes_per_phase"])):
    arrays = run.arrays(seed, phase, "features/")
    names = ("test", "test_labels", "exemplars", "exemplars_labels")
    if len(found) == len(_PANELS) or any(
      f"features/{name}" not in arrays for name in names
    ):
      continue
    test, test_labels, exemplars, exemplar_labels = (
      arrays[f"features/{name}"] for name in names
    )
    # Runs of earlier versions have none of other classes.
    others = arrays.get("features/others", test[:0])
    other_labels = arrays.get("features/others_labels", test_labels[:0])
    if len(np.unique(test_labels)) >= _PANELS[len(found)]:
      sizes = len(test), len(exemplars), len(others)
      found.append(
        Panel(
          row,
          phase,
          np.concatenate([test, exemplars, others]),
          np.concatenate([test_labels, exemplar_labels, other_labels]),
          np.repeat([False, True, False], sizes),
          np.repeat([False, False, True], sizes),
        )
      )
  return found


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


def _map(
  name: str, runs: Sequence[Run], titles: Sequence[str]
) -> Iterator[Drawing]:
  found = [panel for row, run in enumerate(runs) for panel in panels(run, row)]
  if not found:
    return
  most = min(_MAX_POINTS, _MAX_POINTS_PER_ROW * len(runs))
  found = thin(found, most)
  union = np.concatenate([panel.features for panel in found])
  if len(union) < _MIN_POINTS or not np.ptp(union, axis=0).any():
    return
  points = embed(union)
  ends = np.cumsum([len(panel.labels) for panel in found])
  placed = list(zip(found, np.split(points, ends[:-1]), strict=True))

  results = runs[0].results
  classes = np.unique(np.concatenate([panel.classes for panel in found]))
  colors: dict[int, str] = dict(zip(classes.tolist(), COLORS, strict=False))
  columns = max(
    sum(panel.row == row for panel in found) for row in range(len(runs))
  )
  # A single panel has its legend beside it, the others below.
  alone = columns == 1
  side = 2.7 if columns > 2 else 3.4
  figure = Figure(
    figsize=(
      0.4 + side * columns + (2.4 if alone else 0.0),
      (0.2 if alone else 0.9) + (side + 0.2) * len(runs),
    ),
    layout="constrained",
  )
  axes = figure.subplots(
    len(runs), columns, squeeze=False, sharex=True, sharey=True
  )
  # One square window for all panels.
  middle, reach = (
    (points.max(0) + points.min(0)) / 2,
    np.ptp(points, axis=0).max() * 0.53,
  )
  axes[0, 0].set_xlim(middle[0] - reach, middle[0] + reach)
  axes[0, 0].set_ylim(middle[1] - reach, middle[1] + reach)
  for ax in axes.flat:
    ax.set_visible(False)
  rows = []
  for row in range(len(runs)):
    in_row = [(panel, xy) for panel, xy in placed if panel.row == row]
    for ax, (panel, xy) in zip(axes[row], in_row, strict=False):
      _panel(ax, panel, xy, colors)
      few = len(panel.classes)
      seen = sum(results["classes_per_phase"][: panel.phase + 1])
      ax.set_title(
        f"after phase {panel.phase}: {few} of {seen} classes", fontsize=9.5
      )
      rows += [
        [
          titles[row],
          panel.phase,
          kind,
          int(label),
          results["class_names"][label],
          number(x),
          number(y),
        ]
        for (x, y), label, kind in zip(
          xy, panel.labels, _kinds(panel), strict=True
        )
      ]
    if len(runs) > 1:
      axes[row, 0].set_ylabel(shorten(titles[row], 34), fontsize=10)
  figure.legend(
    handles=_legend(results, colors, any(p.other.any() for p in found)),
    loc="outside right upper" if alone else "outside lower left",
    ncols=1 if alone else columns + 1,
    fontsize=9,
    columnspacing=1.2,
    handletextpad=0.3,
  )
  header = ["run", "phase", "kind", "class_index", "class", "x", "y"]
  yield Drawing(name, figure, header, rows)


def _kinds(panel: Panel) -> np.ndarray:
  """What each point is, for the numbers beside the picture."""
  kinds = np.where(panel.exemplar, "exemplar", "test")
  return np.where(panel.other, "other", kinds)


def _panel(ax, panel: Panel, xy: np.ndarray, colors: dict[int, str]) -> None:
  ax.set_visible(True)
  others = xy[panel.other]
  ax.scatter(*others.T, s=16, marker="x", color=_GREY, linewidths=0.8, zorder=1)
  for label, color in colors.items():
    members = (panel.labels == label) & ~panel.other
    real, stars = xy[members & ~panel.exemplar], xy[members & panel.exemplar]
    ax.scatter(*real.T, s=9, color=color, alpha=0.45, linewidths=0, zorder=2)
    ax.scatter(
      *stars.T,
      s=75,
      marker="*",
      color=color,
      edgecolors="white" if color == "#000000" else "black",
      linewidths=0.6,
      zorder=3,
    )
  ax.set_aspect("equal")
  ax.set_xticks([])
  ax.set_yticks([])
  ax.spines[:].set_visible(True)


def _legend(results, colors: dict[int, str], others: bool) -> list[Line2D]:
  phase_of = np.repeat(
    np.arange(len(results["classes_per_phase"])), results["classes_per_phase"]
  )

  def mark(label, color, marker, size, alpha=1.0):
    return Line2D(
      [],
      [],
      linestyle="",
      marker=marker,
      color=color,
      markersize=size,
      markeredgecolor="black" if marker == "*" else color,
      markeredgewidth=0 if marker == "o" else 0.6,
      alpha=alpha,
      label=label,
    )

  marks = [mark("test image", "0.4", "o", 4, 0.6)]
  marks.append(mark("exemplar", "0.85", "*", 9))
  if others:
    marks.append(mark("another class", _GREY, "x", 4))
  return [
    mark(
      f"{shorten(results['class_names'][label])} (phase {phase_of[label]})",
      color,
      "o",
      6,
    )
    for label, color in colors.items()
  ] + marks
