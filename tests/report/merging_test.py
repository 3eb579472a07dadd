"""Runs that differ in nothing but their seeds are one."""

import dataclasses

import pytest
from support import report_fixture

from mnemonics_jax.report.group import merge_seeds
from mnemonics_jax.runs.results import load_run


@pytest.fixture
def made(tmp_path):
  return lambda *seeds, **options: load_run(
    report_fixture.write(tmp_path / str(seeds), seeds=seeds, **options)
  )


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
