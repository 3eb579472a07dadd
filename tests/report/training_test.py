"""Curves over the epochs of all phases."""

import dataclasses

import pytest
from support import report_fixture

from mnemonics_jax.report.lines import training_curves
from mnemonics_jax.runs.results import Run, load_run


def epoch(seed, phase, stage, number, **measured):
  place = dict(kind="epoch", seed=seed, phase=phase, stage=stage, epoch=number)
  return place | measured


@pytest.fixture
def drawn(tmp_path, monkeypatch):
  run = load_run(report_fixture.write(tmp_path / "run", seeds=(0,)))

  def draw(*metrics):
    monkeypatch.setattr(Run, "metrics", list(metrics))
    return list(training_curves(dataclasses.replace(run)))

  return draw


def table(drawing):
  return [dict(zip(drawing.header, row, strict=True)) for row in drawing.rows]


def test_stages_and_phases_are_laid_end_to_end(drawn):
  (drawing,) = drawn(
    epoch(0, 0, "finetune", 0, loss=1.0),
    epoch(0, 0, "train", 0, loss=3.0, accuracy=0.25),
    epoch(0, 0, "train", 1, loss=2.0, accuracy=0.5),
    epoch(0, 1, "train", 0, loss=4.0),
  )
  places = {
    (r["phase"], r["stage"], r["epoch"]): r["position"] for r in table(drawing)
  }
  # Training comes before its fine-tune, whatever came first in the file.
  assert places == {
    (0, "train", 0): 1, (0, "train", 1): 2, (0, "finetune", 0): 3, (1, "train", 0): 4,
  }  # fmt: skip


def test_of_an_epoch_that_was_repeated_the_last_counts(drawn):
  (drawing,) = drawn(
    epoch(0, 0, "train", 0, loss=3.0), epoch(0, 0, "train", 0, loss=1.5)
  )
  (row,) = table(drawing)
  assert (row["loss"], row["accuracy"]) == (1.5, None)


def test_it_says_how_training_ended_in_the_first_seed(drawn):
  (drawing,) = drawn(
    epoch(3, 0, "train", 0, loss=3.0, accuracy=0.25),
    epoch(3, 2, "train", 0, loss=0.125, accuracy=0.75),
    epoch(1, 2, "train", 0, loss=9.0, accuracy=0.1),
  )
  assert drawing.finding == (
    "Training of phase 2 ends with a loss of 0.125 and 75.0\u00a0% of the training"
    " images right."
  )


def test_other_records_are_no_epochs(drawn):
  assert drawn(dict(kind="phase", seed=0, phase=0, accuracy={})) == []
  assert drawn() == []
