"""How long a run will take is measured once; durations are words."""

import io

import pytest

from mnemonics_jax import report
from mnemonics_jax.progress import RunBegins, SeedBegins, StepReport
from mnemonics_jax.report import console


@pytest.fixture
def clock(monkeypatch):
  """Time stands still but for what a test adds to `clock[0]`."""
  now = [100.0]
  monkeypatch.setattr(console.time, "monotonic", lambda: now[0])
  return now


def test_the_duration_is_estimated_once_for_all_seeds(clock):
  stream = io.StringIO()
  with report.Console(stream=stream) as console:
    # 2 seeds of 50 + 10 steps.
    console(RunBegins(2, (3, 4), (50.0, 10.0)))
    for seed in (3, 4):
      console(SeedBegins(seed))
      for step in range(1, 11):
        # Steps take half a second, but for the first, which are compiled.
        clock[0] += 0.5 if step > 3 else 30.0
        console(StepReport(0, "train", 0, 1, step, 50))
      console(StepReport(1, "train", 0, 1, 1, 10))
  assert stream.getvalue().splitlines() == [
    "Training steps alone will take about 1 min 00 s (0.5 s each, measured);"
    " compiling and testing come on top."
  ]


@pytest.mark.parametrize(
  "first",
  [
    StepReport(1, "train", 0, 1, 1, 50),  # A run that is continued.
    StepReport(0, "exemplars", 0, 1, 1, 50),  # The base model was there.
  ],
)
def test_no_estimate_where_phase_0_is_not_trained(clock, first):
  said = []
  listener = console.Estimate(said.append)
  listener(RunBegins(2, (0,), (50.0, 10.0)))
  listener(first)
  for step in range(20):
    clock[0] += 1.0
    listener(StepReport(0, "train", 0, 1, step, 50))
  assert not said


def test_durations():
  assert console.format_duration(41.6) == "42 s"
  assert console.format_duration(185) == "3 min 05 s"
  assert console.format_duration(7800) == "2 h 10 min"


def test_what_phases_took_tells_what_is_left():
  """Work is 6 + 2 + 2 for each of two seeds; phases take 3 s a unit."""
  remaining = console.Remaining((6.0, 2.0, 2.0), seeds=2)
  phases = [(0, 18.0), (1, 6.0), (2, 6.0)]
  left = [remaining.after(*one) for one in phases * 2]
  assert left == pytest.approx([42, 36, 30, 12, 6, 0])


def test_phases_that_compile_are_forgotten():
  """The first two take 20 s more; the others 1 s, as they are of equal work."""
  remaining = console.Remaining((1.0,) * 5, seeds=1)
  left = [remaining.after(*one) for one in enumerate([21, 21, 1, 1, 1])]
  assert left == pytest.approx([84, 63, 2, 1, 0])


def test_a_model_that_was_there_tells_nothing_of_what_is_left():
  """Phase 0 is read in a second, the others need 10 s a unit."""
  remaining = console.Remaining((6.0, 2.0, 2.0), seeds=1)
  remaining.during(0, 0.9, 0.5)  # Its exemplars.
  assert remaining.after(0, 1.0, trained=False) == 0
  assert remaining.during(1, 0.5, 0.0) == 0
  assert remaining.during(1, 1.0, 10.0) == pytest.approx(20)
  assert remaining.after(1, 20.0) == pytest.approx(40)


def test_a_run_that_continues_has_done_only_what_it_was_seen_doing():
  """It goes on where three quarters of phase 1 were done, and needs 8 s a unit."""
  remaining = console.Remaining((4.0, 4.0, 4.0), seeds=1)
  assert remaining.during(1, 0.75, 5.0) == 0  # Nothing is known yet.
  assert remaining.during(1, 0.875, 9.0) == pytest.approx(8 * 4.5)
  assert remaining.after(1, 8.0) == pytest.approx(8 * 4)
