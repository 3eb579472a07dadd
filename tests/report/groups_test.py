"""Only runs on the same data are compared; others are shown apart."""

import dataclasses

from support import report_fixture

from mnemonics_jax.report import group, story, tables
from mnemonics_jax.runs.results import load_run


def make(root, name, **options):
  return load_run(report_fixture.write(root / name, **options))


def test_runs_on_other_data_are_apart(tmp_path):
  def data(run, **config):
    return dataclasses.replace(run, config={**run.config, **config})

  one = make(tmp_path, "one", seeds=(0,))
  other = make(tmp_path, "other", exemplars="mnemonics", seeds=(0,))
  assert [g.runs for g in group.by_data([one, other])] == [[one, other]]
  assert group.by_data([one])[0].title == "digits"
  # Other images under the same names.
  apart = group.by_data([data(one, data=1), data(other, data=2)])
  assert [g.title for g in apart] == ["digits, data 1", "digits, data 2"]
  # Where one of them does not know, names decide.
  assert len(group.by_data([data(one, data=1), other])) == 1
  # Another data set, another order, more classes.
  cifar = make(tmp_path, "cifar", seeds=(0,))
  cifar.results["dataset"] = "cifar"
  turned = make(tmp_path, "turned", names=list("edcba"), seeds=(0,))
  more = make(tmp_path, "more", groups=(3, 1, 1, 1), seeds=(0,))
  found = group.by_data([one, cifar, other, more])
  assert [g.runs for g in found] == [[one, other, more], [cifar]]
  assert [g.title for g in found] == ["digits", "cifar"]
  found = group.by_data([one, turned, more])
  assert [g.runs for g in found] == [[one, more], [turned]]
  assert [g.title for g in found] == ["digits, 6 classes", "digits, 5 classes"]
  found = group.by_data([one, turned])
  assert found[1].title == "digits, 5 classes: e, d, c and two more"


def test_runs_in_other_phases_are_compared_point_by_point(tmp_path):
  runs = [make(tmp_path, "a"), make(tmp_path, "b", groups=(2, 1, 1, 1))]
  assert len(group.by_data(runs)) == 1
  text = story.compare(["a", "b"], runs)
  assert "averages cannot be compared" in text
  assert "above the same number of classes can" in text
  table = tables.comparison_table("ab", [r.results for r in runs], "head")
  assert [row[4] for row in table.rows] == ["–", "–"]
