"""Comparisons: curves, the upper bound, seeds that were run apart, moments."""

import dataclasses

from matplotlib.colors import to_hex
import pytest
from support import report_fixture

from mnemonics_jax.report import group, lines, story, tables
from mnemonics_jax.report.group import labels
from mnemonics_jax.runs.results import load_run


def make(root, name, **options):
  return load_run(report_fixture.write(root / name, **options))


def set_settings(run, **values):
  settings = {**run.config["settings"], **values}
  return dataclasses.replace(run, config={**run.config, "settings": settings})


def table(drawing):
  return [dict(zip(drawing.header, row, strict=True)) for row in drawing.rows]


def curves(drawing):
  return {line.get_label(): line for line in drawing.figure.axes[0].lines}


def test_both_readouts_with_the_upper_bound_dashed(tmp_path):
  runs = [
    make(tmp_path, "a"),
    make(tmp_path, "b", method="joint", offset=0.08, seeds=(0,)),
    make(tmp_path, "c", exemplars="mnemonics", offset=0.02),
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
    assert [t.get_text() for t in legend.get_texts()] == [
      *(names[1], names[2], names[0])
    ]
    bounds = {row["run"]: row["upper_bound"] for row in table(drawing)}
    assert bounds == dict(zip(names, (0, 1, 0), strict=True))


def test_a_dozen_curves_look_different(tmp_path):
  run = make(tmp_path, "run", seeds=(0,))
  (drawing, _) = lines.comparison_curves(
    [set_settings(run, epochs=epochs) for epochs in range(12)]
  )
  drawn = curves(drawing)
  assert list(drawn) == [f"epochs {epochs}" for epochs in range(12)]
  looks = {
    (line.get_color(), line.get_marker(), line.get_markerfacecolor())
    for line in drawn.values()
  }
  assert len(looks) == 12
  assert "#000000" not in {color for color, *_ in looks}


def test_labels_tell_runs_apart_by_title_settings_directory(tmp_path):
  runs = [make(tmp_path, name, seeds=(0,)) for name in ("a", "b")]
  assert labels(runs) == ["(a)", "(b)"]
  runs = [
    set_settings(runs[0], adjust=True, transfer="none"),
    set_settings(runs[1], adjust=False, transfer="in_out"),
  ]
  assert labels(runs) == [
    "adjust · transfer none",
    "no adjust · transfer in_out",
  ]
  other = make(tmp_path, "c", seeds=(0,), exemplars="mnemonics")
  assert labels([runs[0], other]) == ["herding", "mnemonics"]


def test_runs_that_differ_in_seeds_are_one(tmp_path):
  runs = [make(tmp_path, f"{seed}", seeds=(seed,)) for seed in (1, 0)]
  (merged,) = group.merge_seeds(runs)
  assert merged.results["seeds"] == [1, 0]
  assert merged.path == runs[0].path
  (drawing, _) = lines.comparison_curves([merged])
  row = table(drawing)[1]
  # Seeds have 80 and 78; Student's t with one degree of freedom is 12.706.
  assert (row["seeds"], row["mean_percent"]) == (2, pytest.approx(79))
  assert float(row["ci95_percent"]) == pytest.approx(12.706, rel=1e-4)


def test_other_runs_stay_apart(tmp_path):
  run = make(tmp_path, "a", seeds=(0, 1))
  again = make(tmp_path, "b", seeds=(1, 2))
  longer = set_settings(make(tmp_path, "c", seeds=(3,)), epochs=9)
  unknown = dataclasses.replace(make(tmp_path, "d", seeds=(4,)), config={})
  bare = dataclasses.replace(make(tmp_path, "e", seeds=(5,)), config={})
  runs = [run, again, longer, unknown, bare]
  assert group.merge_seeds(runs) == runs


def test_the_upper_bound_is_no_competitor(tmp_path):
  runs = [
    make(tmp_path, "a"),
    make(tmp_path, "b", exemplars="mnemonics", offset=0.02),
    make(tmp_path, "c", method="joint", offset=0.08),
  ]
  names = ["herding", "mnemonics", "joint"]
  text = story.compare(names, runs)
  assert text.startswith("mnemonics has the highest average accuracy below the")
  assert "2.0 ± 0.0 points above herding" in text
  text = story.compare(names[1:], runs[1:])
  assert text.startswith("joint has the highest average accuracy, ")


def test_no_winner_without_several_seeds_in_common(tmp_path):
  names = ["herding", "mnemonics"]
  better = dict(exemplars="mnemonics", offset=0.3)
  one = make(tmp_path, "a", seeds=(0,))
  none = (
    "No winner can be named: that takes several seeds, the same for all. Average"
    " accuracies reach from 80.0\u00a0% (herding) to 110.0\u00a0% (mnemonics)."
  )
  compared = [one, make(tmp_path, "b", seeds=(0,), **better)]
  assert story.compare(names, compared) == none
  # Nor in the tables: without interval, a difference has no colour there.
  table = tables.comparison_table(names, [r.results for r in compared], "head")
  assert table.rows[1][4] == "+30.00"
  text = story.compare(names, [one, make(tmp_path, "c", seeds=(1,), **better)])
  assert text.startswith("No winner can be named: that takes several seeds")


def test_no_winner_where_the_interval_includes_zero(tmp_path):
  runs = [make(tmp_path, "a"), make(tmp_path, "b", exemplars="mnemonics")]
  # Differences of 1 and 3 points: 2 ± 12.7.
  for record, gain in zip(runs[1].results["runs"], (0.01, 0.03), strict=True):
    record["average"]["head"] += gain
  runs[1].results["summary"]["head"]["average"]["mean"] += 0.02
  assert story.compare(["herding", "mnemonics"], runs) == (
    "No winner can be named: the difference of the best two may be chance: its"
    " 95\u00a0% interval includes zero. Average accuracies reach from 79.0\u00a0%"
    " (herding) to 81.0\u00a0% (mnemonics)."
  )


def test_methods_are_compared_by_what_they_report(tmp_path):
  runs = [make(tmp_path, "a"), make(tmp_path, "b", method="icarl")]
  runs[1].results["readout"] = "nme"  # 5 points below the head.
  text = story.compare(["lucir", "icarl"], runs)
  assert "79.0\u00a0%: 5.0 ± 0.0 points above icarl" in text


def test_moments_side_by_side(tmp_path):
  (drawing,) = lines.moment_curves(make(tmp_path, "run"))
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


def test_moments_without_a_fine_tune_are_one(tmp_path):
  run = make(tmp_path, "run", finetune=False)
  (drawing,) = lines.moment_curves(run)
  assert {row["moment"] for row in table(drawing)} == {"after"}
