"""Curves over the phases: the numbers beside them, and what is drawn."""

import pytest
from support import report_fixture

from mnemonics_jax.report import lines
from mnemonics_jax.runs.results import load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  return load_run(
    report_fixture.write(tmp_path_factory.mktemp("charts") / "run")
  )


def test_a_curve_for_each_read_out_with_its_seeds(run):
  (drawing,) = lines.phase_curve(run)
  assert [row[:3] for row in drawing.rows] == [
    [name, phase, 3 + phase] for name in ("head", "nme") for phase in range(3)
  ]
  # Seeds have 80 and 78: t(1) = 12.706 times one point.
  assert drawing.rows[1][3:] == pytest.approx([79, 12.706, 80, 78])
  drawn = {line.get_label(): line for line in drawing.figure.axes[0].lines}
  assert list(drawn) == ["head (reported)", "nme"]
  assert list(drawn["nme"].get_ydata()) == pytest.approx([84, 74, 64])
  assert drawn["head (reported)"].get_linewidth() > drawn["nme"].get_linewidth()


def test_ribbons_stay_between_nothing_and_everything(run):
  (drawing,) = lines.phase_curve(run)
  for ribbon in drawing.figure.axes[0].collections:
    heights = ribbon.get_paths()[0].vertices[:, 1]
    assert heights.min() >= 0 and heights.max() <= 100


def test_one_seed_has_no_ribbon(tmp_path):
  run = load_run(report_fixture.write(tmp_path / "run", seeds=(0,)))
  (drawing,) = lines.phase_curve(run)
  assert not drawing.figure.axes[0].collections
  assert drawing.rows[0][4] is None
