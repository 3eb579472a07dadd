"""The look that all figures share, and how one is saved with its numbers."""

from collections.abc import Sequence
import csv
import io
from pathlib import Path
from typing import Any, NamedTuple
import warnings

from matplotlib.figure import Figure

from mnemonics_jax.runs import files

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
  """

  name: str
  figure: Figure
  header: Sequence[str]
  rows: Sequence[Sequence[Any]]


def save(drawing: Drawing, directory: Path) -> Path:
  """Writes NAME.png and NAME.csv, returns the picture's path."""
  directory.mkdir(parents=True, exist_ok=True)
  path = directory / f"{drawing.name}.png"
  with warnings.catch_warnings():
    # A name in a script without glyphs here is drawn as boxes, not a problem.
    warnings.filterwarnings("ignore", message="Glyph .* missing from")
    with files.replacing(path) as file:
      drawing.figure.savefig(
        file, format="png", bbox_inches="tight", pad_inches=0.08
      )
  text = io.StringIO()
  writer = csv.writer(text, lineterminator="\n")
  writer.writerow(drawing.header)
  writer.writerows(drawing.rows)
  files.write_text(path.with_suffix(".csv"), text.getvalue())
  return path


def number(value: float | None, scale: float = 1.0) -> str:
  """A CSV cell: short, exact to six digits, empty when there is no value."""
  return "" if value is None else f"{scale * value:.6g}"


def shorten(text: str, length: int = 18) -> str:
  """One line of at most `length` characters, for labels."""
  text = " ".join(text.split())
  return text if len(text) <= length else text[: length - 1] + "…"
