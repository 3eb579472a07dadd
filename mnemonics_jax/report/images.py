"""The memory as pictures: the exemplars of each class, tiled."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from matplotlib.figure import Figure
import numpy as np
from PIL import Image

from mnemonics_jax.report.drawing import INK, Drawing, shorten
from mnemonics_jax.runs.finished import Run

_SIDE = 32  # Smaller images are enlarged to about this side ...
_MAX_SIDE = 64  # ... and larger ones reduced to this.
_GAP = 2
_COLUMNS = 10
_MAX_PIXELS = 1_200_000  # Of all pictures of a sheet together.
_PAGE_PIXELS = 420_000  # Of those on a page: about a megabyte.
_ZOOMED = 56  # Pixels of a screen for the side of a small image.
_MAX_CLASSES = 120
_MAX_SHOWN = 20


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


def memory_images(run: Run, pixels: int = _PAGE_PIXELS) -> list[ClassImages]:
  """What the first seed's memory holds at the end, as far as can be shown.

  Args:
    run: whose memory.
    pixels: of all images together, about.
  """
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


def memory_grid(run: Run) -> Iterator[Drawing]:
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
  canvas = np.zeros(
    (rows * (height + label) + space, columns * (width + space), 4), np.uint8
  )
  # At 200 dots per inch a pixel becomes 2 by 2: for sheets that stay small.
  size = canvas.shape[1] / 100, canvas.shape[0] / 100
  figure = Figure(figsize=size, dpi=200 if max(size) < 10 else 100)
  axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
  axes.set_axis_off()
  for index, (entry, sheet) in enumerate(zip(classes, sheets, strict=True)):
    column, row = divmod(index, rows)
    x, y = column * (width + space) + space // 2, row * (height + label) + label
    canvas[y : y + sheet.shape[0], x : x + sheet.shape[1]] = sheet
    name = f"{shorten(entry.name, width // 9)} (phase {entry.phase})"
    axes.text(x, y - 5, name, fontsize=7, color=INK)
  axes.imshow(canvas, interpolation="nearest")
  header = ["index", "class", "phase", "images", "shown"]
  rows_ = [[c.index, c.name, c.phase, c.count, len(c.images)] for c in classes]
  total = sum(c.count for c in classes)
  finding = f"{total} exemplars of {len(classes)} classes."
  yield Drawing("memory", figure, header, rows_, finding, exact=True)


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
