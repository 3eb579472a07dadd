"""The look of all figures, and how a figure is saved with its numbers."""

from collections.abc import Iterable, Sequence
import csv
import io
from pathlib import Path
from typing import Any, NamedTuple
import warnings

import matplotlib
from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin

from mnemonics_jax import files

# Okabe and Ito's colours, told apart by colour-blind readers too.
COLORS = (
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#56B4E9",
  "#E69F00",
  "#000000",
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
FAINT = "#F1F3F5"
INK = "#24292F"

STYLE: dict[Any, Any] = {
  "axes.axisbelow": True,
  "axes.edgecolor": "#8C959F",
  "axes.grid": True,
  "axes.labelcolor": INK,
  "axes.spines.right": False,
  "axes.spines.top": False,
  "axes.titlesize": 11,
  "figure.dpi": 160,
  "figure.facecolor": "white",
  "font.family": "DejaVu Sans",
  "font.size": 10.5,
  "grid.color": "#E4E7EB",
  "grid.linewidth": 0.8,
  "legend.frameon": False,
  "lines.markersize": 5,
  "text.color": INK,
  # Class names are shown as they are: "$" does not start a formula.
  "text.parse_math": False,
  "xtick.color": INK,
  "ytick.color": INK,
}


class Drawing(NamedTuple):
  """A figure with the numbers it shows.

  Attributes:
    name: file name without suffix.
    figure: the picture.
    header: column names of the numbers.
    rows: the numbers, one list per line.
    finding: a sentence that says what the picture shows: caption and alt text.
    exact: keep the colour of every pixel, as photographs need.
  """

  name: str
  figure: Figure
  header: Sequence[str]
  rows: Sequence[Sequence[Any]]
  finding: str
  exact: bool = False


_DESCRIPTION = "Description"  # A keyword of the PNG standard.


def save_all(drawings: Iterable[Drawing], directory: Path) -> list[Path]:
  """Draws and saves figures one by one, all in the same look."""
  with matplotlib.rc_context(STYLE):
    return [save(drawing, directory) for drawing in drawings]


def save(drawing: Drawing, directory: Path) -> Path:
  """Writes NAME.png with its finding and NAME.csv; returns the PNG's path."""
  directory.mkdir(parents=True, exist_ok=True)
  path = directory / f"{drawing.name}.png"
  raw = io.BytesIO()
  with warnings.catch_warnings():
    # Names in scripts that the font lacks are drawn as boxes.
    warnings.filterwarnings("ignore", message="Glyph .* missing from")
    drawing.figure.savefig(
      raw, format="png", bbox_inches="tight", pad_inches=0.08
    )
  picture = Image.open(raw).convert("RGB")
  if not drawing.exact:  # A third of the size, with no visible difference.
    picture = picture.quantize(256, dither=Image.Dither.NONE)
  description = PngImagePlugin.PngInfo()
  description.add_itxt(_DESCRIPTION, drawing.finding)
  with files.replacing(path) as file:
    picture.save(file, "PNG", optimize=True, pnginfo=description)
  text = io.StringIO()
  writer = csv.writer(text, lineterminator="\n")
  writer.writerow(drawing.header)
  writer.writerows(map(cell, row) for row in drawing.rows)
  files.write_text(path.with_suffix(".csv"), text.getvalue())
  return path


def finding(path: Path) -> str:
  """The sentence that `save` wrote into a picture; without one, its name."""
  with Image.open(path) as picture:
    return str(picture.info.get(_DESCRIPTION, path.stem.replace("_", " ")))


def size(path: Path) -> tuple[int, int]:
  """Width and height of a picture on a page, in pixels of the page."""
  with Image.open(path) as picture:
    width, height = picture.size
  return round(0.75 * width), round(0.75 * height)


def cell(value: Any) -> str:
  """A CSV cell: numbers exact to six digits, None empty, the rest as it is."""
  if value is None:
    return ""
  return f"{value:.6g}" if isinstance(value, float) else str(value)
