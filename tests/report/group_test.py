"""Runs beside each other: which are compared, joined, and what they are called."""

import dataclasses
from pathlib import Path

import pytest
from support import report_fixture

from mnemonics_jax.report import group, story, tables
from mnemonics_jax.report.group import common_title, labels, merge_seeds
from mnemonics_jax.runs.results import Run, load_run


@pytest.fixture
def made(tmp_path):
  return lambda *seeds, name=None, **options: load_run(
    report_fixture.write(
      tmp_path / (name or str(seeds)), seeds=seeds, **options
    )
  )


def titled(title, path="runs/a", **settings):
  return Run(Path(path), {"settings": settings}, {"title": title})


def test_one_run_has_its_title():
  assert labels([titled("digits · lwf · random")]) == ["digits · lwf · random"]


def test_the_parts_of_titles_that_differ_tell_runs_apart():
  runs = [titled("digits · lwf · random"), titled("digits · bic · random")]
  assert labels(runs) == ["lwf", "bic"]
  assert common_title(runs) == "digits · random"
  # Titles with other numbers of parts are not compared part by part.
  assert labels([titled("a · b"), titled("a")]) == ["a · b", "a"]


def test_settings_tell_apart_what_titles_do_not():
  runs = [
    titled("t", epochs=3, adjust=True, method="x", lr=0.1),
    titled("t", epochs=4, adjust=False, method="y", lr=0.1),
  ]
  # The method is part of titles: it is not said twice.
  assert labels(runs) == ["epochs 3 · adjust", "epochs 4 · no adjust"]


def test_the_directory_is_the_last_resort():
  runs = [titled("t", "runs/one"), titled("t", "runs/two")]
  assert labels(runs) == ["(one)", "(two)"]


def test_seeds_are_joined_in_their_order(made):
  first, second = made(2), made(0, 1)
  (joined,) = merge_seeds([first, second])
  assert joined.path == first.path
  assert joined.results["seeds"] == [2, 0, 1]
  assert [run["seed"] for run in joined.results["runs"]] == [2, 0, 1]
  # Averages are 0.80 − 0.02 seed: 76, 80 and 78.
  average = joined.results["summary"]["head"]["average"]
  assert average["mean"] == pytest.approx(0.78)
  # t(2) = 4.303 times 2 / √3 points.
  assert average["ci95"] == pytest.approx(0.04968, abs=1e-5)
  assert first.results["seeds"] == [2]  # What was given stays as it was.


def test_repetitions_stay_apart(made):
  runs = [made(0, 1), made(1)]
  assert merge_seeds(runs) == runs


@pytest.mark.parametrize(
  "change",
  [
    dict(title="another"),
    dict(class_names=["a", "b", "c", "d", "e"]),
    dict(classes_per_phase=[2, 2, 1]),
  ],
)
def test_other_results_stay_apart(made, change):
  one, other = made(0), made(1)
  other = dataclasses.replace(other, results={**other.results, **change})
  assert merge_seeds([one, other]) == [one, other]


def test_other_settings_and_unknown_ones_stay_apart(made):
  one, other = made(0), made(1)
  longer = {**other.config["settings"], "epochs": 99}
  changed = dataclasses.replace(other, config={"settings": longer})
  assert merge_seeds([one, changed]) == [one, changed]
  unknown = [dataclasses.replace(run, config={}) for run in (one, other)]
  assert merge_seeds(unknown) == unknown


def test_runs_on_other_data_are_apart(made):
  def data(run, **config):
    return dataclasses.replace(run, config={**run.config, **config})

  one = made(0, name="one")
  other = made(0, name="other", exemplars="mnemonics")
  assert [g.runs for g in group.by_data([one, other])] == [[one, other]]
  assert group.by_data([one])[0].title == "digits"
  # Other images under the same names.
  apart = group.by_data([data(one, data=1), data(other, data=2)])
  assert [g.title for g in apart] == ["digits, data 1", "digits, data 2"]
  # Where one of them does not know, names decide.
  assert len(group.by_data([data(one, data=1), other])) == 1
  # Another data set, another order, more classes.
  cifar = made(0, name="cifar")
  cifar.results["dataset"] = "cifar"
  turned = made(0, name="turned", names=list("edcba"))
  more = made(0, name="more", groups=(3, 1, 1, 1))
  found = group.by_data([one, cifar, other, more])
  assert [g.runs for g in found] == [[one, other, more], [cifar]]
  assert [g.title for g in found] == ["digits", "cifar"]
  found = group.by_data([one, turned, more])
  assert [g.runs for g in found] == [[one, more], [turned]]
  assert [g.title for g in found] == ["digits, 6 classes", "digits, 5 classes"]
  found = group.by_data([one, turned])
  assert found[1].title == "digits, 5 classes: e, d, c and two more"


def test_runs_in_other_phases_are_compared_point_by_point(made):
  runs = [made(0, 1, name="a"), made(0, 1, name="b", groups=(2, 1, 1, 1))]
  assert len(group.by_data(runs)) == 1
  text = story.compare(["a", "b"], runs)
  assert "averages cannot be compared" in text
  assert "above the same number of classes can" in text
  table = tables.comparison_table("ab", [r.results for r in runs], "head")
  assert [row[4] for row in table.rows] == ["–", "–"]
