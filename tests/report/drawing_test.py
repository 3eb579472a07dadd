"""A figure is saved with its numbers."""

import csv

import matplotlib
from PIL import Image
import pytest
from support import report_fixture

from mnemonics_jax.report import draw, lines, words
from mnemonics_jax.runs.results import load_run


@pytest.mark.parametrize(
  "value, cell",
  [
    (None, ""),
    (0.0, "0"),
    (12.3456789, "12.3457"),
    (1e-9, "1e-09"),
    (79.0, "79"),
    (1234567, "1234567"),
    ("a, b", "a, b"),
  ],
)
def test_cells_are_short_and_exact_to_six_digits(value, cell):
  assert draw.cell(value) == cell


def test_labels_are_one_line_of_limited_length():
  assert words.shorten("a  b\n c") == "a b c"
  assert words.shorten("x" * 18) == "x" * 18
  assert words.shorten("x" * 19) == "x" * 17 + "…"
  assert len(words.shorten("word " * 9, 12)) == 12


def test_the_picture_stands_beside_its_numbers(tmp_path):
  run = load_run(report_fixture.write(tmp_path / "run"))
  (made,) = lines.phase_curve(run)
  with matplotlib.rc_context(draw.STYLE):
    path = draw.save(made, tmp_path / "new" / "figures")
  assert path == tmp_path / "new" / "figures" / "phase_curve.png"
  with Image.open(path) as picture:
    assert picture.format == "PNG" and min(picture.size) > 100
  with path.with_suffix(".csv").open(encoding="utf-8") as file:
    header, *rows = csv.reader(file)
  assert header == list(made.header)
  assert rows == [[draw.cell(value) for value in row] for row in made.rows]
  assert len(list(path.parent.iterdir())) == 2  # No drafts are left.


def test_colours_and_markers_are_told_apart():
  assert len(set(draw.COLORS)) == len(draw.COLORS)
  assert len(set(draw.MARKERS)) == len(draw.MARKERS)
  assert not draw.STYLE["text.parse_math"]  # "$" in a name is a dollar.
