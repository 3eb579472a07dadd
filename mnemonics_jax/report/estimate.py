"""How long a run will take, measured at its beginning; durations in words."""

from collections.abc import Callable, Sequence
import time

from mnemonics_jax.progress import Event, RunBegins, StepReport


def format_duration(seconds: float) -> str:
  """`42 s`, `3 min 05 s` or `2 h 10 min`."""
  minutes, rest = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f"{hours} h {minutes:02d} min"
  return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


class Estimate:
  """A `Report` that says once, after the first steps, how long training takes.

  What else a run does is known when its first phases are over: see `Remaining`.

  Args:
    say: receives the sentence.
    settle: seconds to measure for, once the programs have been compiled.
  """

  def __init__(self, say: Callable[[str], None], settle: float = 1.0):
    self._say = say
    self._settle = settle
    self._work = 0.0
    self._first = 0.0, 0
    self._heard = 0
    self._done = True  # Until a run begins.

  def __call__(self, event: Event) -> None:
    match event:
      case RunBegins(_, seeds, work):
        self._work = sum(work) * len(seeds)
        self._heard, self._done = 0, False
      case StepReport():
        self._measure(event)

  def _measure(self, report: StepReport) -> None:
    # A base phase too short to measure is over before one could read on.
    self._done = self._done or report.phase > 0 or report.stage != "train"
    if self._done:
      return
    now, steps = time.monotonic(), report.epoch * report.steps + report.step
    self._heard += 1
    if self._heard <= 3:
      # Calls that still compile end with the first reports; time counts after.
      self._first = now, steps
    elif now - self._first[0] >= self._settle:
      pace = (now - self._first[0]) / (steps - self._first[1])
      self._done = True
      self._say(
        f"Training steps alone will take about {format_duration(pace * self._work)}"
        f" ({pace:.3g} s each, measured); compiling and testing come on top."
      )


class Remaining:
  """The time that is left, by what the phases so far have taken.

  >>> remaining = Remaining((6.0, 2.0, 2.0), seeds=1)
  >>> remaining.after(phase=0, seconds=30.0)  # 6 of 10 units took 30 s.
  20.0

  Args:
    work: expected work of each phase.
    seeds: how many seeds do all of it.
  """

  def __init__(self, work: Sequence[float], seeds: int):
    self._work, self._seeds = work, seeds
    self._seconds = self._done = 0.0

  def after(self, phase: int, seconds: float) -> float:
    """Seconds that are left, once a phase has taken so many."""
    self._seconds += seconds
    self._done += self._work[phase]
    if phase == len(self._work) - 1:
      self._seeds -= 1
    rest = sum(self._work[phase + 1 :]) + sum(self._work) * (
      self._seeds - (phase < len(self._work) - 1)
    )
    return self._seconds / self._done * max(rest, 0.0)
