"""How far exemplars move, run beside run."""

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax.report import lines
from mnemonics_jax.runs.results import load_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  """With N of 2 and 4, and one that has not learned exemplars."""
  root = tmp_path_factory.mktemp("distances")
  make = lambda name, **options: load_run(
    report_fixture.write(root / name, exemplars=name, **options)
  )
  return [
    make("short", learned=True),
    make("long", groups=(3, 1, 1, 1, 1), learned=True),
    make("herding"),
  ]


def test_smoothing_is_a_mean_whose_weights_fall_back_in_time():
  # Weights 1, 1/2, 1/4 from the newest value back.
  found = lines.smooth([8.0, 2.0, 6.0], rate=0.5)
  assert found == pytest.approx([8.0, (2 + 4) / 1.5, (6 + 1 + 2) / 1.75])
  assert lines.smooth([3.0] * 5) == pytest.approx([3.0] * 5)
  assert lines.smooth([]) == []


def test_runs_stand_side_by_side(runs):
  (drawing,) = lines.comparison_distances(runs)
  titles = [axes.get_title() for axes in drawing.figure.axes]
  assert titles == ["short", "long", "", ""]
  top = drawing.figure.axes[1]
  # A faint and a smoothed line for each of five phases.
  assert len(top.lines) == 2 * 5
  # In phase 1, seeds 0 and 1 moved by 1 + 0.1 seed + 0.02 epoch.
  measured = [0.0, 1.07, 1.09, 1.11]
  faint, strong = top.lines[2:4]
  np.testing.assert_allclose(faint.get_ydata(), measured, rtol=1e-6)
  np.testing.assert_allclose(
    strong.get_ydata(), [0.0, *lines.smooth(measured[1:])], rtol=1e-6
  )
  # Phase 4 moves farthest, and is still in the picture.
  assert top.get_ylim()[0] == 0 and top.get_ylim()[1] > 4.11
  assert faint.get_alpha() < 1 and strong.get_alpha() is None
  below = drawing.figure.axes[3]
  np.testing.assert_allclose(
    below.lines[2].get_ydata(), [0.0, 1.08, 1.11, 1.14], rtol=1e-6
  )
  (legend,) = [top.get_legend()]
  words = [text.get_text() for text in legend.get_texts()]
  assert words == ["phase 0", "phase 4"]


def test_numbers_are_both_measured_and_smoothed(runs):
  (drawing,) = lines.comparison_distances(runs)
  rows = [dict(zip(drawing.header, row, strict=True)) for row in drawing.rows]
  assert len(rows) == (3 + 5) * 4  # Phases, epochs 0 to 3.
  (row,) = [
    r for r in rows if (r["run"], r["phase"], r["meta_epoch"]) == ("long", 1, 2)
  ]
  assert float(row["cosine"]) == pytest.approx(1.09)
  # The epoch before it weighs 0.8.
  smoothed = (1.09 + 0.8 * 1.07) / 1.8
  assert float(row["cosine_smoothed"]) == pytest.approx(smoothed, rel=1e-5)


def test_one_run_alone_is_not_compared(runs):
  assert not [*lines.comparison_distances([runs[0], runs[2]])]
