"""Maps of features: test images and exemplars of a few classes in one plane."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.figure import Figure
from matplotlib.lines import Line2D
import numpy as np

from mnemonics_jax.readouts.nme import normalize
from mnemonics_jax.report.draw import COLORS, Drawing
from mnemonics_jax.report.group import labels
from mnemonics_jax.report.words import listed, share, shorten
from mnemonics_jax.runs.results import Run

# t-SNE of a thousand points takes seconds.
_MAX_POINTS, _MAX_POINTS_PER_ROW = 1500, 900
_MIN_POINTS = 10
_GREY = "0.68"  # Of classes that have no colour.

_COLORED = 7  # Classes that have a colour ...
_WORST = 3  # ... of which so many are recognised least in the end.
_MIN_CLASSES = 3  # A map of two says little.
_MAX_OTHERS = 150
_MAX_ROWS = 4


class Panel(NamedTuple):
  """Features of one run after one phase.

  Attributes:
    phase: the phase.
    features: [n, d], of test images, of exemplars, of other classes.
    labels: classes of the n, in the learned order.
    exemplar: which of the n are exemplars.
    other: which of the n stand for a whole class without a colour.
  """

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
    return Panel(self.phase, *(array[rows] for array in self[1:]))


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


def _map(
  name: str, runs: Sequence[Run], titles: Sequence[str]
) -> Iterator[Drawing]:
  if not mapped_phases(runs[0]):
    return
  classes = colored_classes(runs)
  by_run = [panels(run, classes) for run in runs]
  most = min(_MAX_POINTS, _MAX_POINTS_PER_ROW * len(runs))
  found = thin([panel for row in by_run for panel in row], most)
  union = np.concatenate([panel.features for panel in found])
  if len(union) < _MIN_POINTS or not np.ptp(union, axis=0).any():
    return
  points = embed(union)
  ends = np.cumsum([len(panel.labels) for panel in found])
  placed = list(zip(found, np.split(points, ends[:-1]), strict=True))
  left = iter(placed)
  grid = [[next(left) for _ in row] for row in by_run]

  results = runs[0].results
  colors: dict[int, str] = dict(zip(classes, COLORS, strict=False))
  columns = max(map(len, grid))
  figure, axes = _grid(len(runs), columns, points)
  rows = []
  for across, title, row in zip(axes, titles, grid, strict=True):
    for ax, (panel, xy) in zip(across, row, strict=False):
      _panel(ax, panel, xy, colors)
      seen = sum(results["classes_per_phase"][: panel.phase + 1])
      words = f"{len(panel.classes)} of {seen} classes"
      ax.set_title(f"after phase {panel.phase}: {words}", fontsize=9.5)
      kinds = np.where(panel.exemplar, "exemplar", "test")
      kinds = np.where(panel.other, "other", kinds)
      for label, kind, (x, y) in zip(panel.labels, kinds, xy, strict=True):
        place = int(label), results["class_names"][label], float(x), float(y)
        rows.append([title, panel.phase, kind, *place])
    if len(runs) > 1:
      across[0].set_ylabel(shorten(title, 34), fontsize=10)
  shares = recognised(runs[0]) if len(runs) == 1 else None
  alone = columns == 1
  figure.legend(
    handles=_legend(results, colors, any(p.other.any() for p in found), shares),
    loc="outside right upper" if alone else "outside lower left",
    ncols=1 if alone else columns + 1,
    fontsize=9,
    columnspacing=1.2,
    handletextpad=0.3,
  )
  header = ["run", "phase", "kind", "class_index", "class", "x", "y"]
  finding = _separation(results, placed, titles)
  yield Drawing(name, figure, header, rows, finding)


def _grid(rows: int, columns: int, points: np.ndarray):
  """A figure, and axes for its panels, which are not seen before they are used."""
  # A single panel has its legend beside it, the others below.
  alone = columns == 1
  side = 2.7 if columns > 2 else 3.4
  width = 0.4 + side * columns + (2.4 if alone else 0.0)
  height = (0.2 if alone else 0.9) + (side + 0.2) * rows
  figure = Figure(figsize=(width, height), layout="constrained")
  axes = figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True)
  # One square window for all panels.
  middle = (points.max(0) + points.min(0)) / 2
  reach = np.ptp(points, axis=0).max() * 0.53
  axes[0, 0].set_xlim(middle[0] - reach, middle[0] + reach)
  axes[0, 0].set_ylim(middle[1] - reach, middle[1] + reach)
  for ax in axes.flat:
    ax.set_visible(False)
  return figure, axes


def _separation(
  results: Mapping[str, Any],
  placed: Sequence[tuple[Panel, np.ndarray]],
  titles: Sequence[str],
) -> str:
  """How well the clouds are apart after the last phase."""
  last = max(panel.phase for panel, _ in placed)
  found = []
  for panel, xy in placed:
    if panel.phase == last:
      dots = ~panel.exemplar & ~panel.other
      middles = [xy[dots & (panel.labels == c)].mean(0) for c in panel.classes]
      gaps = np.linalg.norm(xy[dots][:, None] - np.array(middles), axis=-1)
      own = panel.classes[gaps.argmin(axis=1)] == panel.labels[dots]
      found.append((own, panel.labels[dots]))
  if len(found) > 1:
    pairs = zip(titles, found, strict=True)
    each = listed([f"{share(own.mean())} ({t})" for t, (own, _) in pairs])
    return f"After phase {last}, dots nearest to the middle of their own cloud: {each}."
  own, labels = found[0]
  text = (
    f"After phase {last}, {share(own.mean())} of the dots lie nearest to the"
    " middle of their own cloud"
  )
  parts = {c: own[labels == c].mean() for c in np.unique(labels).tolist()}
  worst = min(parts, key=lambda c: parts[c])
  if parts[worst] < 1:
    name = shorten(results["class_names"][worst])
    text += f", fewest of {name}, {share(parts[worst])}"
  return f"{text}."


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


def _legend(
  results: Mapping[str, Any],
  colors: Mapping[int, str],
  others: bool,
  shares: np.ndarray | None,
) -> list[Line2D]:
  """Marks of the classes, with the share that is recognised, and of the kinds."""
  groups = results["classes_per_phase"]
  phase_of = np.repeat(np.arange(len(groups)), groups)

  def mark(label: str, color: str, marker: str, size: float, **look: Any):
    options = {"color": color, "marker": marker, "markersize": size}
    edge = {
      "markeredgecolor": "black" if marker == "*" else color,
      "markeredgewidth": 0 if marker == "o" else 0.6,
    }
    return Line2D([], [], linestyle="", label=label, **options, **edge, **look)

  marks = []
  for index, color in colors.items():
    known = "" if shares is None else f", {100 * shares[index]:.0f} %"
    name = shorten(results["class_names"][index])
    words = f"{name} (phase {phase_of[index]}{known})"
    marks.append(mark(words, color, "o", 6))
  marks.append(mark("test image", "0.4", "o", 4, alpha=0.6))
  marks.append(mark("exemplar", "0.85", "*", 9))
  if others:
    marks.append(mark("another class", _GREY, "x", 4))
  return marks


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


def panels(run: Run, classes: Sequence[int]) -> list[Panel]:
  """The first seed's panels, in which some classes have a colour."""
  found = []
  for phase in mapped_phases(run):
    arrays = _features(run, phase)
    parts = []
    for kind in ("test", "exemplars"):
      rows = np.isin(arrays[f"{kind}_labels"], classes)
      parts.append((arrays[kind][rows], arrays[f"{kind}_labels"][rows]))
    parts.append(_other_classes(arrays, classes))
    features, labels = map(np.concatenate, zip(*parts, strict=True))
    kinds = np.repeat(np.arange(3), [len(labels) for _, labels in parts])
    found.append(Panel(phase, features, labels, kinds == 1, kinds == 2))
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
  if "others" in arrays:  # Earlier versions kept nothing else of them.
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
