"""Seconds of each stage, also of one that comes twice."""

from mnemonics_jax.progress import Note, StepReport
from mnemonics_jax.runs.clock import Clock


def test_seconds_are_counted_by_stage(monkeypatch):
  now = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])

  def reach(stage, seconds):
    now[0] = seconds
    clock(StepReport(0, stage, 0, 1, 0, 1))

  clock = Clock()
  assert clock.read() == {} and clock.stage is None
  reach("train", 1.0)  # Nobody knows what was before.
  reach("train", 3.0)
  reach("evaluate", 4.0)
  reach("finetune", 4.5)
  clock(Note("not a place"))
  reach("evaluate", 10.5)
  now[0] = 11.0
  assert clock.read() == {"train": 3.0, "evaluate": 1.0, "finetune": 6.0}
  assert clock.stage == "evaluate"


def test_counts_go_on_from_those_of_an_interrupted_phase(monkeypatch):
  now = [50.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  clock = Clock()
  stored = {"train": 3.0}
  clock.restart(stored)
  clock(StepReport(0, "train", 0, 1, 0, 1))
  now[0] = 52.0
  assert clock.read() == {"train": 5.0}
  assert stored == {"train": 3.0}
