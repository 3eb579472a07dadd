"""Curves: what is drawn, and the numbers beside it."""

import dataclasses
import json

from matplotlib.colors import to_hex
import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax.report import lines
from mnemonics_jax.report.group import merge_seeds
from mnemonics_jax.runs.results import Run, load_run


@pytest.fixture
def made(tmp_path):
  return lambda name="run", **options: load_run(
    report_fixture.write(tmp_path / name, **options)
  )


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
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


def with_settings(run, **values):
  settings = {**run.config["settings"], **values}
  return dataclasses.replace(run, config={**run.config, "settings": settings})


def table(drawing):
  return [dict(zip(drawing.header, row, strict=True)) for row in drawing.rows]


def curves(drawing):
  return {line.get_label(): line for line in drawing.figure.axes[0].lines}


def words(legend):
  return [text.get_text() for text in legend.get_texts()]


def test_a_curve_for_each_read_out_with_its_seeds(made):
  (drawing,) = lines.phase_curve(made())
  assert [row[:3] for row in drawing.rows] == [
    [name, phase, 3 + phase] for name in ("head", "nme") for phase in range(3)
  ]
  # Seeds have 80 and 78: t(1) = 12.706 times one point.
  assert drawing.rows[1][3:] == pytest.approx([79, 12.706, 80, 78])
  drawn = curves(drawing)
  assert list(drawn) == ["head (reported)", "nme"]
  assert list(drawn["nme"].get_ydata()) == pytest.approx([84, 74, 64])
  assert drawn["head (reported)"].get_linewidth() > drawn["nme"].get_linewidth()
  # Ribbons stay between nothing and everything.
  for ribbon in drawing.figure.axes[0].collections:
    heights = ribbon.get_paths()[0].vertices[:, 1]
    assert heights.min() >= 0 and heights.max() <= 100


def test_one_seed_has_no_ribbon(made):
  (drawing,) = lines.phase_curve(made(seeds=(0,)))
  assert not drawing.figure.axes[0].collections
  assert drawing.rows[0][4] is None


def test_one_phase_is_a_point(made):
  run = made(groups=(5,), seeds=(0,))
  (drawing,) = lines.phase_curve(run)
  assert drawing.finding == (
    "On 5 classes, head has 90.0\u00a0% and nme has 85.0\u00a0%."
  )
  (drawing,) = lines.moment_curves(run)
  assert drawing.finding == "There is one phase, and no old class."


def test_the_ends_of_a_curve_tell_whether_it_rises(made):
  run = made()
  for estimate, mean in zip(
    run.results["summary"]["head"]["per_phase"], (0.5, 0.4, 0.6), strict=True
  ):
    estimate["mean"] = mean
  (drawing,) = lines.phase_curve(run)
  assert "head rises from 50.0\u00a0% to 60.0\u00a0%" in drawing.finding


def test_both_readouts_with_the_upper_bound_dashed(made):
  runs = [
    made("a"),
    made("b", method="joint", offset=0.08, seeds=(0,)),
    made("c", exemplars="mnemonics", offset=0.02),
  ]
  head, nme = lines.comparison_curves(runs)
  assert (head.name, nme.name) == ("comparison_head", "comparison_nme")
  names = ["lucir · herding", "joint · herding (upper bound)"]
  names.append("lucir · mnemonics")
  for drawing, readout in ((head, 0.0), (nme, -5.0)):
    drawn = curves(drawing)
    assert list(drawn) == names
    # Phase p has 90 - 10 p - 2 seed plus the offset.
    for name, first in zip(names, (89, 98, 91), strict=True):
      expected = [first + readout - 10 * phase for phase in range(3)]
      assert list(drawn[name].get_ydata()) == pytest.approx(expected)
      assert list(drawn[name].get_xdata()) == [3, 4, 5]
    dashed = {name: drawn[name].is_dashed() for name in names}
    assert dashed == dict(zip(names, (False, True, False), strict=True))
    colors = [to_hex(drawn[name].get_color()) for name in names]
    assert colors[1] == "#000000" and len(set(colors)) == 3
    # Ribbons only where there are several seeds.
    assert len(drawing.figure.axes[0].collections) == 2
    (legend,) = drawing.figure.legends
    assert words(legend) == [names[1], names[2], names[0]]
    bounds = {row["run"]: row["upper_bound"] for row in table(drawing)}
    assert bounds == dict(zip(names, (0, 1, 0), strict=True))


def test_a_dozen_curves_look_different(made):
  run = made(seeds=(0,))
  runs = [with_settings(run, epochs=epochs) for epochs in range(12)]
  (drawing, _) = lines.comparison_curves(runs)
  drawn = curves(drawing)
  assert list(drawn) == [f"epochs {epochs}" for epochs in range(12)]
  looks = {
    (line.get_color(), line.get_marker(), line.get_markerfacecolor())
    for line in drawn.values()
  }
  assert len(looks) == 12
  # Each has a line of the legend, below the axes.
  assert drawing.figure.get_figheight() == pytest.approx(3.8 + 12 * 0.21)
  assert "#000000" not in {color for color, *_ in looks}


def test_runs_that_differ_in_seeds_are_one_curve(made):
  (merged,) = merge_seeds([made(f"{seed}", seeds=(seed,)) for seed in (1, 0)])
  (drawing, _) = lines.comparison_curves([merged])
  row = table(drawing)[1]
  # Seeds have 80 and 78; Student's t with one degree of freedom is 12.706.
  assert (row["seeds"], row["mean_percent"]) == (2, pytest.approx(79))
  assert float(row["ci95_percent"]) == pytest.approx(12.706, rel=1e-4)
  # The same run twice is drawn over itself.
  assert len(list(lines.comparison_curves([merged, merged]))) == 2


def test_moments_side_by_side(made):
  (drawing,) = lines.moment_curves(made())
  found = {
    (r["classes"], r["readout"], r["moment"], r["phase"]): r["mean_percent"]
    for r in table(drawing)
  }
  # In phase 1 seeds have 80 and 78; before the fine-tune old classes had 4
  # points less, new ones 2 more; old classes are at -2, new ones at +3.
  assert found["old", "head", "before", 1] == pytest.approx(73)
  assert found["old", "head", "after", 1] == pytest.approx(77)
  assert found["new", "head", "before", 1] == pytest.approx(84)
  assert found["new", "head", "after", 1] == pytest.approx(82)
  assert found["all", "nme", "before", 1] == pytest.approx(70)
  assert found["all", "nme", "after", 1] == pytest.approx(74)
  assert ("old", "head", "after", 0) not in found
  old, new, _ = drawing.figure.axes
  assert (old.get_title(), new.get_title()) == ("old classes", "new classes")
  assert [line.is_dashed() for line in new.lines] == [True, False] * 2
  assert new.lines[0].get_ydata()[1] == pytest.approx(84)
  # Without a fine-tune there is one moment.
  (drawing,) = lines.moment_curves(made("none", finetune=False))
  assert {row["moment"] for row in table(drawing)} == {"after"}


def epoch(seed, phase, stage, number, **measured):
  place = dict(kind="epoch", seed=seed, phase=phase, stage=stage, epoch=number)
  return place | measured


@pytest.fixture
def trained(made, monkeypatch):
  run = made(seeds=(0,))

  def draw(*metrics):
    monkeypatch.setattr(Run, "metrics", list(metrics))
    return list(lines.training_curves(dataclasses.replace(run)))

  return draw


def test_stages_and_phases_are_laid_end_to_end(trained):
  (drawing,) = trained(
    epoch(0, 0, "a stage of later versions", 0, loss=1.0),
    epoch(0, 0, "finetune", 0, loss=1.0),
    epoch(0, 0, "train", 0, loss=3.0, accuracy=0.25),
    epoch(0, 0, "train", 1, loss=2.0, accuracy=0.5),
    epoch(0, 1, "train", 0, loss=4.0),
  )
  places = {
    (r["phase"], r["stage"][:8], r["epoch"]): r["position"]
    for r in table(drawing)
  }
  # Training comes before its fine-tune, whatever came first in the file.
  assert places == {
    (0, "train", 0): 1,
    (0, "train", 1): 2,
    (0, "finetune", 0): 3,
    (0, "a stage ", 0): 4,
    (1, "train", 0): 5,
  }
  # Numbers of phases stand in the middle of 1 to 4, and of 5.
  numbers = drawing.figure.axes[0].texts
  assert [number.get_position()[0] for number in numbers] == [2.5, 5]


def test_of_an_epoch_that_was_repeated_the_last_counts(trained):
  (drawing,) = trained(
    epoch(0, 0, "train", 0, loss=3.0), epoch(0, 0, "train", 0, loss=1.5)
  )
  (row,) = table(drawing)
  assert (row["loss"], row["accuracy"]) == (1.5, None)


def test_it_says_how_training_ended_in_the_first_seed(trained):
  (drawing,) = trained(
    epoch(3, 0, "train", 0, loss=3.0, accuracy=0.25),
    epoch(3, 2, "train", 0, loss=0.125, accuracy=0.75),
    epoch(1, 2, "train", 0, loss=9.0, accuracy=0.1),
  )
  assert drawing.finding == (
    "Training of phase 2 ends with a loss of 0.125 and 75.0\u00a0% of the training"
    " images right."
  )
  (drawing,) = trained(epoch(0, 0, "finetune", 0, loss=1.0))
  assert drawing.finding == "No epoch of training was recorded."


def test_other_records_are_no_epochs(trained):
  assert trained(dict(kind="phase", seed=0, phase=0, accuracy={})) == []
  assert trained() == []


def test_distances_are_the_history(learned):
  (drawing,) = lines.exemplar_distances(learned[0])
  rows = table(drawing)
  adjusted = [r for r in rows if r["stage"] == "adjust"]
  assert len(rows) - len(adjusted) == 2 * 3 * 3  # Seeds, phases, epochs.
  assert len(adjusted) == 2 * 2 * 6
  for row in rows:
    length = 3 if row["stage"] == "exemplars" else 6
    truth = report_fixture.history(row["phase"], row["seed"], length)
    place = 3 * row["part"] + row["meta_epoch"] - 1
    for name in ("displacement", "cosine", "euclidean"):
      assert float(row[name]) == pytest.approx(truth[name][place], rel=1e-5)
  assert {(r["part"], r["meta_epoch"]) for r in adjusted} == {
    (part, epoch) for part in (0, 1) for epoch in (1, 2, 3)
  }


def test_distances_draw_the_mean_of_the_seeds_from_zero(learned):
  (drawing,) = lines.exemplar_distances(learned[0])
  learn, *_, adjust = drawing.figure.axes[:4]
  # Pixels moved by phase + 0.1 seed + 0.01 epoch; two seeds.
  np.testing.assert_allclose(
    learn.lines[1].get_ydata(), [0, 1.06, 1.07, 1.08], rtol=1e-6
  )
  first, second = adjust.lines[:2]
  assert list(first.get_xdata()) == [0, 1, 2, 3]
  assert list(second.get_xdata()) == [3, 4, 5, 6]
  np.testing.assert_allclose(
    second.get_ydata(), [0, 1.09, 1.10, 1.11], rtol=1e-6
  )


def test_an_adjustment_of_three_parts_is_drawn_in_three(learned):
  run = with_settings(learned[0], adjust_parts=3)
  (drawing,) = lines.exemplar_distances(run)
  adjust = drawing.figure.axes[3]
  first, second, third = (list(x.get_xdata()) for x in adjust.lines[:3])
  assert (first, second, third) == ([0, 1, 2], [2, 3, 4], [4, 5, 6])
  parts = {row[3] for row in drawing.rows if row[0] == "adjust"}
  assert parts == {0, 1, 2}


def test_of_many_phases_some_are_named(made):
  run = made(groups=[1] * 12, seeds=(0,), size=2, learned=True)
  (drawing,) = lines.exemplar_distances(run)
  (legend,) = drawing.figure.legends
  assert words(legend) == [f"phase {phase}" for phase in range(0, 12, 2)]


def test_without_distances_nothing_is_drawn(tmp_path):
  path = report_fixture.write(tmp_path / "run", seeds=(0,))
  results = json.loads((path / "results.json").read_text())
  for phase in results["runs"][0]["phases"]:
    phase["diagnostics"] = {"exemplars": {"mean_change": 1.0}}
  (path / "results.json").write_text(json.dumps(results))
  assert not [*lines.exemplar_distances(load_run(path))]


def test_smoothing_is_a_mean_whose_weights_fall_back_in_time():
  # Weights 1, 1/2, 1/4 from the newest value back.
  found = lines.smooth([8.0, 2.0, 6.0], rate=0.5)
  assert found == pytest.approx([8.0, (2 + 4) / 1.5, (6 + 1 + 2) / 1.75])
  assert lines.smooth([3.0] * 5) == pytest.approx([3.0] * 5)
  assert lines.smooth([]) == []


def test_runs_stand_side_by_side(learned):
  (drawing,) = lines.comparison_distances(learned)
  titles = [axes.get_title() for axes in drawing.figure.axes]
  assert titles == ["short", "long", "", ""]
  beside = [axes.get_ylabel() for axes in drawing.figure.axes]
  assert beside == ["cosine distance", "", "Euclidean distance", ""]
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
  assert words(top.get_legend()) == ["phase 0", "phase 4"]
  # One run alone is not compared.
  assert not [*lines.comparison_distances([learned[0], learned[2]])]
