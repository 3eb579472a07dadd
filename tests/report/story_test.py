"""A run in plain words: its outcome, its failures, what may help, who is ahead."""

import json

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import story, tables
from mnemonics_jax.runs.results import load_run


@pytest.fixture
def made(tmp_path):
  return lambda name="run", **options: load_run(
    report_fixture.write(tmp_path / name, **options)
  )


@pytest.mark.parametrize(
  "groups, words",
  [
    ((3, 1, 1), "3 at first, then 2 phases of 1 more."),
    ((3, 2), "3 at first, then one phase of 2 more."),
    ((3, 2, 1), "3 at first, then 2 phases of 1 to 2 more."),
    ((5,), "in a single phase."),
  ],
)
def test_phases_are_told_in_words(made, groups, words):
  text = story.describe(made(groups=groups, seeds=(0,)).results)
  assert f"{sum(groups)} classes of digits" in text and words in text


def test_data_have_the_names_people_know(made):
  results = made().results
  for name, title in (("cifar100", "CIFAR-100"), ("my pets", "my pets")):
    text = story.describe(results | {"dataset": name})
    assert f"classes of {title} apart" in text


def test_methods_have_the_names_people_know(made):
  text = story.describe(made(method="icarl", exemplars="random").results)
  assert "trained with iCaRL" in text and "random exemplars" in text
  bound = story.describe(made("joint", method="joint").results)
  assert "upper bound" in bound and "kept" not in bound


def test_what_numbers_can_be_used_for(made):
  results = made(seeds=(0,)).results
  assert story.caveat(results).startswith("There is one seed")
  assert "epochs 3 (paper: 160), net tiny" in story.caveat(results)
  paper = story.caveat(results | {"schedule": "paper", "seeds": [0, 1]})
  assert "means over 2 seeds" in paper
  assert paper.endswith("The settings are the paper's.")


def test_the_numbers_on_top(made):
  found = {name: value for name, value, _ in story.key_numbers(made())}
  assert found["Average accuracy"] == "79.0 %"
  assert found["After the last phase"] == "69.0 %"
  assert found["Forgetting"] == "11.0"
  assert found["Memory"] == "20"


@pytest.fixture
def ended(tmp_path):
  def make(*last, first=0.9, readout="head", settings=(), **options):
    """A run that ends with these accuracies on the base classes, by seed."""
    path = report_fixture.write(
      tmp_path / "run", seeds=range(len(last)), **options
    )
    results = json.loads((path / "results.json").read_text())
    results["readout"] = readout
    for run, accuracy in zip(results["runs"], last, strict=True):
      run["phases"][0]["by_group"][readout][0] = first
      run["phases"][-1]["by_group"][readout][0] = accuracy
    (path / "results.json").write_text(json.dumps(results))
    config = json.loads((path / "config.json").read_text())
    config["settings"] |= dict(settings)
    (path / "config.json").write_text(json.dumps(config))
    return load_run(path)

  return make


def test_less_than_a_third_of_what_was_known_is_told(ended):
  assert report.warning(ended(0.31)) == ""
  # The mean over the seeds counts.
  assert report.warning(ended(0.05, 0.56)) == ""
  assert report.warning(ended(0.2, 0.3)) == (
    "The first three classes are hardly recognised: 90.0\u00a0% of the test"
    " images when new, 25.0\u00a0% at the end. What may help:"
    " `finetune=head`, which ends each phase with equal parts of all classes."
  )


def test_what_was_little_from_the_start_is_not_forgotten(ended):
  assert report.warning(ended(0.2, first=0.5)) == ""
  assert report.warning(ended(0.1, first=0.34)) != ""


def test_what_is_far_behind_the_others_is_told(ended):
  # In the end all classes have 70 % on average, and a quarter is 17.5 %.
  assert report.warning(ended(0.18, first=0.18)) == ""
  assert story.failure(ended(0.17, first=0.17)) == (
    "The first three classes are hardly recognised: 17.0\u00a0% of the test"
    " images when new, 17.0\u00a0% at the end."
  )
  run = ended(0.1)
  for phase, group, share in ((1, 1, 0.6), (2, 1, 0.04), (2, 2, 0.1)):
    run.results["runs"][0]["phases"][phase]["by_group"]["head"][group] = share
  # 3, 1 and 1 classes, of which 90, 60 and 10 % were known when they were new.
  one = ended(0.8)
  one.results["runs"][0]["phases"][2]["by_group"]["head"][1] = 0.1
  assert story.failure(one).startswith("The class of phase 1 is hardly")
  assert story.failure(run) == (
    "The classes of phases 0 to 2 are hardly recognised: 68.0\u00a0% of the test"
    " images when new, 8.8\u00a0% at the end."
  )


def confuse(run, *right, learned=None):
  """Tests all of 50 images a class, of which so many are right in the end.

  The others are taken for the first class that is right at all; `learned` are
  those right after each class's own phase.
  """
  names = run.results["class_names"]
  phase_of = np.repeat(range(3), run.results["classes_per_phase"])
  refuge = next(c for c, count in enumerate(right) if count)
  for phase in range(3):
    counts = np.zeros([sum(phase_of <= phase)] * 2, int)
    for label in range(len(counts)):
      count = right[label] if phase == 2 else (learned or right)[label]
      counts[label, label] += count
      other = refuge if phase == 2 else (label + 1) % len(counts)
      counts[label, other] += 50 - count
    for seed in run.results["seeds"]:
      file = run.path / f"seed_{seed}" / f"phase_{phase:02d}.npz"
      np.savez(file, **{"confusion/final/head": counts})
  assert len(right) == len(names)
  return run


def test_classes_that_are_never_predicted_are_named(ended):
  run = confuse(ended(0.0), 0, 0, 0, 9, 50, learned=(4, 5, 6, 9, 50))
  # 8, 10 and 12 % when they were new.
  assert story.failure(run) == (
    "The three oldest classes are never predicted: 10.0\u00a0% of the test images"
    " were recognised when new, 0\u00a0% at the end."
  )
  assert story.failure(confuse(ended(0.8), 50, 50, 50, 50, 0)) == (
    "The newest class is never predicted."
  )
  assert story.failure(confuse(ended(0.8), 50, 0, 50, 0, 50)) == (
    "The classes price $x_1 and class 3 are never predicted."
  )
  assert story.failure(confuse(ended(0.8), 50, 0, 0, 0, 50)) == (
    "The classes price $x_1, cost $y^2$ & über ☃ and class 3 are never"
    " predicted."
  )
  many = ended(0.8, groups=(4, 2, 2))
  assert story.failure(confuse(many, 50, 0, 50, 0, 0, 0, 0, 50)) == (
    "Five of 8 classes, two of them from phase 0, are never predicted."
  )
  assert story.failure(confuse(ended(0.8), 9, 8, 7, 6, 5)) == ""


def test_every_seed_must_never_predict_a_class(ended):
  run = confuse(ended(0.8, 0.8), 0, 50, 50, 50, 50)
  assert story.failure(run) == "The oldest class is never predicted."
  np.savez(
    run.path / "seed_1" / "phase_02.npz",
    **{"confusion/final/head": np.eye(5, dtype=int)},
  )
  assert story.failure(run) == ""


def test_only_what_is_not_done_yet_is_advised(ended):
  tuned = report.warning(ended(0.1, settings={"finetune": "head"}))
  assert tuned.endswith("What may help: a larger `memory`.")
  means = ended(0.1, settings={"finetune": "head"})
  means.results["summary"]["nme"]["per_phase"][-1]["mean"] = 0.8
  assert report.warning(means).endswith(
    "What may help: `method=icarl`, which compares with the means of exemplars:"
    " these have 80.0\u00a0% in this run."
  )
  means = report.warning(ended(0.1, readout="nme", method="icarl"))
  assert means.endswith("What may help: a larger `memory`.")
  untrained = ended(0.01, first=0.1)
  untrained.results["summary"]["head"]["per_phase"][0]["mean"] = 0.1
  assert report.warning(untrained).endswith(
    "What may help: more `base_epochs` and `epochs`, as only 10.0\u00a0% were"
    " recognised after phase 0."
  )


def test_where_nothing_is_to_be_forgotten_nothing_is_advised(ended):
  joint = ended(0.1, method="joint")
  assert report.warning(joint) == story.failure(joint) != ""
  assert report.warning(ended(0.1, groups=(5,))) == ""


def test_the_upper_bound_is_no_competitor(made):
  runs = [
    made("a"),
    made("b", exemplars="mnemonics", offset=0.02),
    made("c", method="joint", offset=0.08),
  ]
  names = ["herding", "mnemonics", "joint"]
  text = story.compare(names, runs)
  assert text.startswith("mnemonics has the highest average accuracy below the")
  assert "2.0 ± 0.0 points above herding" in text
  text = story.compare(names[1:], runs[1:])
  assert text.startswith("joint has the highest average accuracy, ")


def test_no_winner_without_several_seeds_in_common(made):
  names = ["herding", "mnemonics"]
  better = dict(exemplars="mnemonics", offset=0.3)
  one = made("a", seeds=(0,))
  none = (
    "No winner can be named: that takes several seeds, the same for all. Average"
    " accuracies reach from 80.0\u00a0% (herding) to 110.0\u00a0% (mnemonics)."
  )
  compared = [one, made("b", seeds=(0,), **better)]
  assert story.compare(names, compared) == none
  # Nor in the tables: without interval, a difference has no colour there.
  table = tables.comparison_table(names, [r.results for r in compared], "head")
  assert table.rows[1][4] == "+30.00"
  text = story.compare(names, [one, made("c", seeds=(1,), **better)])
  assert text.startswith("No winner can be named: that takes several seeds")


def test_no_winner_where_the_interval_includes_zero(made):
  runs = [made("a"), made("b", exemplars="mnemonics")]
  # Differences of 1 and 3 points: 2 ± 12.7.
  for record, gain in zip(runs[1].results["runs"], (0.01, 0.03), strict=True):
    record["average"]["head"] += gain
  runs[1].results["summary"]["head"]["average"]["mean"] += 0.02
  assert story.compare(["herding", "mnemonics"], runs) == (
    "No winner can be named: the difference of the best two may be chance: its"
    " 95\u00a0% interval includes zero. Average accuracies reach from 79.0\u00a0%"
    " (herding) to 81.0\u00a0% (mnemonics)."
  )


def test_methods_are_compared_by_what_they_report(made):
  runs = [made("a"), made("b", method="icarl")]
  runs[1].results["readout"] = "nme"  # 5 points below the head.
  text = story.compare(["lucir", "icarl"], runs)
  assert "79.0\u00a0%: 5.0 ± 0.0 points above icarl" in text
