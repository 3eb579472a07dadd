"""Exemplars as pictures, and matrices of classes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.colors import Normalize, PowerNorm
from matplotlib.figure import Figure
import numpy as np
from PIL import Image

from mnemonics_jax.report.draw import INK, Drawing
from mnemonics_jax.report.lines import MOVING
from mnemonics_jax.report.tables import readouts
from mnemonics_jax.report.words import capital, count, share, shorten
from mnemonics_jax.runs.results import Run

_SIDE = 32  # Smaller images are enlarged to about this side ...
_MAX_SIDE = 64  # ... and larger ones reduced to this.
_GAP = 2
_COLUMNS = 10
_MAX_PIXELS = 1_200_000  # Of all pictures of a sheet together.
_PAGE_PIXELS = 420_000  # Of those on a page: about a megabyte.
_ZOOMED = 56  # Pixels of a screen for the side of a small image.
_MAX_CLASSES = 120
_MAX_SHOWN = 20
_GAINS = (100, 50, 20, 10, 5, 2, 1)
_GREY = 128


class ClassImages(NamedTuple):
  """Some exemplars of one class.

  Attributes:
    index: position of the class in the learned order.
    name: the class name.
    phase: the phase that brought it.
    count: exemplars the memory holds of it.
    images: those shown, uint8 [shown, h, w, 3].
  """

  index: int
  name: str
  phase: int
  count: int
  images: np.ndarray


class Change(NamedTuple):
  """Some exemplars of a phase before and after a stage.

  Attributes:
    phase: the phase.
    labels: their classes, in the learned order.
    before: uint8 images [n, h, w, c] as the stage found them.
    after: the same as the stage left them.
  """

  phase: int
  labels: np.ndarray
  before: np.ndarray
  after: np.ndarray

  @property
  def moved(self) -> np.ndarray:
    """Grey levels by which each pixel has changed."""
    return np.abs(self.after.astype(np.int32) - self.before)

  def shown(self, gain: int) -> list[np.ndarray]:
    """Before, after, and their difference `gain` times amplified."""
    change = difference(self.before, self.after, gain)
    return [self.before, self.after, change]


def memory_images(run: Run, pixels: int = _PAGE_PIXELS) -> list[ClassImages]:
  """The first seed's memory at the end: images of about so many pixels in all."""
  groups = run.results["classes_per_phase"]
  arrays = run.arrays(run.results["seeds"][0], len(groups) - 1)
  if "memory/images" not in arrays or "memory/counts" not in arrays:
    return []
  images, counts = arrays["memory/images"], arrays["memory/counts"]
  phase_of = np.repeat(np.arange(len(groups)), groups)
  classes = np.arange(min(len(images), len(phase_of)))
  if len(classes) > _MAX_CLASSES:
    classes = np.unique(
      np.linspace(0, len(classes) - 1, _MAX_CLASSES, dtype=int)
    )
  side = reduced(*images.shape[2:4])
  room = pixels // (len(classes) * side[0] * side[1])
  shown = int(np.clip(room, 1, _MAX_SHOWN))
  if shown > _COLUMNS:  # Only whole rows.
    shown -= shown % _COLUMNS
  return [
    ClassImages(
      int(c),
      run.results["class_names"][c],
      int(phase_of[c]),
      int(counts[c]),
      resize(images[c, : min(int(counts[c]), shown)], side),
    )
    for c in classes
  ]


def changes(run: Run, stage: str) -> list[Change]:
  """What the first seed saved of a stage, phase by phase."""
  found = []
  for phase in range(len(run.results["classes_per_phase"])):
    arrays = run.arrays(run.results["seeds"][0], phase, f"changed/{stage}/")
    names = [f"changed/{stage}/{n}" for n in ("labels", "before", "after")]
    if all(name in arrays and len(arrays[name]) for name in names):
      found.append(Change(phase, *(arrays[name] for name in names)))
  return found


def amplification(found: Sequence[Change]) -> int:
  """The factor that makes changes visible, the same for all phases.

  It fits 99 of 100 pixels into the range of an image; the rest is cut off.
  """
  moved = np.concatenate([change.moved.ravel() for change in found])
  most = np.percentile(moved, 99) or moved.max()
  return next((g for g in _GAINS if most and g * most < _GREY), 1)


def difference(before: np.ndarray, after: np.ndarray, gain: int) -> np.ndarray:
  """after − before, times `gain`, around grey: grey means no change."""
  shifted = _GREY + gain * (after.astype(np.int32) - before)
  return np.clip(shifted, 0, 255).astype(np.uint8)


def extent(change: Change) -> str:
  """How much the images of a sheet have changed, in words."""
  return (
    f"Phase {change.phase}: pixels changed by {change.moved.mean():.2g} grey "
    f"levels on average and by {change.moved.max()} at most."
  )


def evenly(items: Sequence, most: int) -> list:
  """At most so many of the items, from the first to the last."""
  places = np.linspace(0, len(items) - 1, min(len(items), most))
  return [items[i] for i in places.round().astype(int)]


def tile(
  images: np.ndarray, columns: int = _COLUMNS, gap: int = _GAP
) -> np.ndarray:
  """Images side by side in rows, as RGBA with transparent gaps."""
  n, h, w, _ = images.shape
  columns = max(min(columns, n), 1)
  rows = max(-(-n // columns), 1)
  sheet = np.zeros(
    (rows * (h + gap) - gap, columns * (w + gap) - gap, 4), np.uint8
  )
  for index, image in enumerate(images):
    y, x = divmod(index, columns)
    y, x = y * (h + gap), x * (w + gap)
    sheet[y : y + h, x : x + w, :3] = image
    sheet[y : y + h, x : x + w, 3] = 255
  return sheet


def reduced(height: int, width: int) -> tuple[int, int]:
  """Size of an image, made smaller if it is large."""
  factor = min(_MAX_SIDE / max(height, width), 1.0)
  return max(round(factor * height), 1), max(round(factor * width), 1)


def sides(height: int, width: int) -> tuple[int, int]:
  """Size at which images are drawn: whole factors up, any factor down."""
  height, width = reduced(height, width)
  factor = max(_SIDE // max(height, width), 1)
  return factor * height, factor * width


def zoom(height: int, width: int) -> int:
  """How many times larger a browser should show the pixels of an image."""
  return max(round(_ZOOMED / max(height, width)), 1)


def resize(images: np.ndarray, side: Sequence[int]) -> np.ndarray:
  """uint8 images in colour at another size."""
  if images.shape[-1] == 1:
    images = np.repeat(images, 3, axis=-1)
  height, width = side
  resampling = Image.Resampling.NEAREST
  if images.shape[1] > height:
    resampling = Image.Resampling.LANCZOS
  resized = [
    np.asarray(Image.fromarray(i).resize((width, height), resampling))
    for i in images
  ]
  return np.asarray(resized, np.uint8).reshape(-1, height, width, 3)


def _sheet(
  size: tuple[int, int],
  images: Iterable[tuple[int, int, np.ndarray]],
  words: Iterable[tuple[float, float, str, Mapping[str, Any]]],
) -> Figure:
  """A figure of images, pixel by pixel, with words between them.

  Args:
    size: width and height in pixels.
    images: RGBA pixels, each after its left and upper end.
    words: keywords of `Axes.text` after x, y and a text.
  """
  width, height = size
  inches = width / 100, height / 100
  # At 200 dots per inch a pixel becomes 2 by 2: for sheets that stay small.
  figure = Figure(figsize=inches, dpi=200 if max(inches) < 10 else 100)
  axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
  axes.set_axis_off()
  canvas = np.zeros((height, width, 4), np.uint8)
  for x, y, image in images:
    canvas[y : y + image.shape[0], x : x + image.shape[1]] = image
  axes.imshow(canvas, interpolation="nearest")
  for x, y, text, look in words:
    axes.text(x, y, text, color=INK, **look)
  return figure


def memory_sheet(run: Run) -> Iterator[Drawing]:
  """All classes of the memory on one sheet."""
  classes = memory_images(run, _MAX_PIXELS)
  if not classes or not any(len(c.images) for c in classes):
    return
  side = sides(*classes[0].images.shape[1:3])
  sheets = [tile(resize(c.images, side)) for c in classes]
  height = max(sheet.shape[0] for sheet in sheets)
  width = max(max(sheet.shape[1] for sheet in sheets), 3 * _SIDE)
  label, space = 22, 20  # Pixels above each sheet and between columns.
  # About as wide as high, so that many classes stay readable.
  area = len(sheets) * (height + label) * (width + space)
  columns = int(np.clip(round(np.sqrt(area) / (width + space)), 1, 6))
  rows = -(-len(sheets) // columns)
  images, words = [], []
  for index, (entry, sheet) in enumerate(zip(classes, sheets, strict=True)):
    column, row = divmod(index, rows)
    x, y = column * (width + space) + space // 2, row * (height + label) + label
    name = f"{shorten(entry.name, width // 9)} (phase {entry.phase})"
    images.append((x, y, sheet))
    words.append((x, y - 5, name, {"fontsize": 7}))
  size = columns * (width + space), rows * (height + label) + space
  total = sum(c.count for c in classes)
  yield Drawing(
    "memory",
    _sheet(size, images, words),
    ["index", "class", "phase", "images", "shown"],
    [[c.index, c.name, c.phase, c.count, len(c.images)] for c in classes],
    f"{total} exemplars of {len(classes)} classes.",
    exact=True,
  )


def change_sheets(run: Run) -> Iterator[Drawing]:
  """One sheet per stage and phase: before, after, difference, by class."""
  for stage in MOVING:
    found = changes(run, stage)
    for change in found:
      yield _change_sheet(run, stage, change, amplification(found))


def sheet_name(stage: str, phase: int) -> str:
  return f"exemplars_{MOVING[stage][0]}_{phase:02d}"


def _change_sheet(run: Run, stage: str, change: Change, gain: int) -> Drawing:
  """A row per class; its exemplars beside each other, three pictures each."""
  height, width = sides(*change.before.shape[1:3])
  kinds = [resize(images, (height, width)) for images in change.shown(gain)]
  classes = np.unique(change.labels)
  members = [np.flatnonzero(change.labels == label) for label in classes]
  group = 3 * (width + _GAP) + 3 * _GAP
  columns = max(map(len, members))
  # Letters grow with the images, as the page shows all sheets at one width;
  # names of all classes have room, so that no phase differs from the others.
  names = [shorten(name, 16) for name in run.results["class_names"]]
  scale = max((group * columns + 60) / 260, 1.0)
  left = round(scale * max(6.2 * max(map(len, names)) + 4, 56))
  top, step = round(14 * scale), height + 3 * _GAP
  large, small = ({"fontsize": size * scale} for size in (7, 6))
  images: list[Any] = []
  words: list[Any] = [(0, top - 4, f"phase {change.phase}", large)]
  for column in range(columns):
    for index, word in enumerate(("before", "after", f"×{gain}")):
      x = left + column * group + index * (width + _GAP) + width / 2
      words.append((x, top - 4, word, {"ha": "center", **small}))
  rows = []
  for row, (label, indices) in enumerate(zip(classes, members, strict=True)):
    y = top + row * step
    look = {"va": "center", **large}
    words.append((0, y + height / 2, names[label], look))
    for column, index in enumerate(indices):
      strip = tile(np.stack([images[index] for images in kinds]))
      images.append((left + column * group, y, strip))
      moved = change.moved[index]
      moves = float(moved.mean()), int(moved.max())
      name = run.results["class_names"][label]
      rows.append([int(label), name, column, *moves, gain])
  size = left + group * columns, top + step * len(classes)
  header = ["class_index", "class", "image", "mean_change", "max_change"]
  return Drawing(
    sheet_name(stage, change.phase),
    _sheet(size, images, words),
    [*header, "amplification"],
    rows,
    extent(change),
    exact=True,
  )


def _matrix(
  values: np.ndarray,
  norm: Normalize,
  size: tuple[float, float],
  numbers: tuple[Callable[[float], str], float, float] | None,
  **bar: Any,
) -> tuple[Figure, Axes]:
  """Draws a matrix; returns the figure and its axes.

  Args:
    values: in percent; NaN where there is none.
    norm: the range of colours.
    size: of the figure, in inches.
    numbers: writes a value, the size of its letters, and above which value
      they are white; None for no numbers.
    **bar: keywords of the bar that explains the colours.
  """
  figure = Figure(figsize=size, layout="constrained")
  axes = figure.subplots()
  image = axes.imshow(values, cmap="Blues", norm=norm, interpolation="nearest")
  if numbers:
    text, font, dark = numbers
    for (row, column), value in np.ndenumerate(values):
      look: Any = {"fontsize": font, "color": "white" if value > dark else INK}
      axes.text(column, row, text(value), ha="center", va="center", **look)
  axes.grid(False)
  axes.tick_params(length=0)
  figure.colorbar(image, ax=axes, shrink=0.8, **bar)
  return figure, axes


def accuracy_matrices(run: Run) -> Iterator[Drawing]:
  """Row: after a phase. Column: the classes that a phase brought."""
  groups = run.results["classes_per_phase"]
  phases = len(groups)
  for name in readouts(run.results):
    matrix = np.full((phases, phases), np.nan)
    for row in range(phases):
      seeds = [r["phases"][row]["by_group"][name] for r in run.results["runs"]]
      matrix[row, : row + 1] = 100 * np.mean(np.array(seeds, float), axis=0)
    low = min(10 * np.floor(np.nanmin(matrix) / 10), 90.0)
    digits, font = (1, 9) if phases <= 7 else (0, 8)
    text = lambda value, n=digits: "" if np.isnan(value) else f"{value:.{n}f}"
    figure, axes = _matrix(
      matrix,
      Normalize(low, 100),
      (4.8, 3.9),
      (text, font, low + 0.6 * (100 - low)) if phases <= 12 else None,
      label="accuracy (%)",
    )
    ticks = range(0, phases, 1 + phases // 16)
    axes.set_xticks(ticks, list(map(str, ticks)))
    axes.set_yticks(ticks, list(map(str, ticks)))
    axes.spines[:].set_visible(False)
    axes.set_xlabel("classes that came in phase")
    axes.set_ylabel("after phase")
    axes.set_title(f"read-out {name}")
    header = ["after_phase", "classes_of_phase", "classes", "accuracy_percent"]
    rows = [
      [row, column, groups[column], float(matrix[row, column])]
      for row, column in zip(*np.tril_indices(phases), strict=True)
      if not np.isnan(matrix[row, column])
    ]
    finding = _losses(name, matrix)
    yield Drawing(f"accuracy_matrix_{name}", figure, header, rows, finding)


def _losses(readout: str, matrix: np.ndarray) -> str:
  """What is left of the first classes, and which are known least."""
  first, end = matrix[0, 0] / 100, matrix[-1] / 100
  if len(matrix) == 1 or np.isnan([first, end[0]]).any():
    return f"Accuracy of {readout} by the phase in which classes came."
  worst = int(np.nanargmin(end))
  text = (
    f"On the classes of phase 0, {readout} has {share(first)} when they are new "
    f"and {share(end[0])} at the end"
  )
  if worst:
    text += f"; least at the end on those of phase {worst}, {share(end[worst])}"
  return text + "."


def confusion_matrices(run: Run) -> Iterator[Drawing]:
  """Counts over all seeds after the last phase, one matrix per read-out."""
  last = len(run.results["classes_per_phase"]) - 1
  saved = [run.arrays(seed, last) for seed in run.results["seeds"]]
  for name in readouts(run.results):
    key = f"confusion/final/{name}"
    counts = [arrays[key] for arrays in saved if key in arrays]
    if counts:
      yield _confusion_matrix(run, name, np.sum(counts, axis=0))


def _confusion_matrix(run: Run, readout: str, counts: np.ndarray) -> Drawing:
  n = len(counts)
  names = run.results["class_names"][:n]
  shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
  figure, axes = _matrix(
    shares,
    # The square root brings out the rare confusions beside the diagonal.
    PowerNorm(0.5, vmin=0, vmax=100),
    (5.2, 4.6),
    (lambda value: f"{value:.0f}" if value else "", 8, 40) if n <= 12 else None,
    label="share of the true class (%)",
    ticks=[0, 1, 5, 20, 50, 100],
  )
  borders = np.cumsum(run.results["classes_per_phase"])
  thin = {"linewidth": 0.7 if n <= 25 else 0.5, "alpha": 0.5}
  for border in borders[borders < n]:
    axes.axhline(border - 0.5, color=INK, **thin)
    axes.axvline(border - 0.5, color=INK, **thin)
  if n <= 25:
    short = [shorten(name, 12) for name in names]
    turn = 90 if max(map(len, short)) > 3 else 0
    axes.set_xticks(range(n), short, rotation=turn, fontsize=8)
    axes.set_yticks(range(n), short, fontsize=8)
    kind = "class"
  else:
    middles = borders - np.diff(borders, prepend=0) / 2 - 0.5
    ticks = [0]
    for phase, middle in enumerate(middles):
      if middle - middles[ticks[-1]] >= n / 18:  # Room for the last label.
        ticks.append(phase)
    axes.set_xticks(middles[ticks], [str(t) for t in ticks])
    axes.set_yticks(middles[ticks], [str(t) for t in ticks])
    kind = "class, by the phase it came in"
  axes.set_xlabel(f"predicted {kind}")
  axes.set_ylabel(f"true {kind}")
  axes.set_title(f"read-out {readout}")
  return Drawing(
    f"confusion_{readout}",
    figure,
    ["true_index", "true_class", *names],
    [[i, names[i], *map(int, counts[i])] for i in range(n)],
    _errors(names, shares),
  )


def _errors(names: Sequence[str], shares: np.ndarray) -> str:
  """The most frequent confusion, and how many classes are never predicted."""
  errors = shares * (1 - np.eye(len(names)))
  true, taken = divmod(int(errors.argmax()), len(names))
  if not errors.any():
    return "No test image is taken for another class."
  text = (
    f"Most frequent confusion: {errors[true, taken]:.0f}\u00a0% of "
    f"{shorten(names[true])} are taken for {shorten(names[taken])}."
  )
  never = int((shares.sum(axis=0) == 0).sum())
  if never:
    verb = "is" if never == 1 else "are"
    text += f" {capital(count(never, 'class'))} {verb} never predicted."
  return text
