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
  """The time that is left for all seeds, by what the phases so far have taken.

  The first two phases compile, which tells nothing of those that follow.

  >>> remaining = Remaining((6.0, 2.0, 2.0), seeds=1)
  >>> remaining.after(phase=0, seconds=30.0)  # 6 of 10 units took 30 s.
  20.0

  Args:
    work: expected work of each phase.
    seeds: how many seeds do all of it.
  """

  def __init__(self, work: Sequence[float], seeds: int):
    self._work, self._seeds = work, seeds
    self._took: list[tuple[float, float]] = []  # Work and seconds of phases.
    # Share of the first phase, which may be continued, and seconds when it was
    # heard of: with its first steps, programs have been compiled.
    self._start: tuple[float, float] | None = None

  def after(self, phase: int, seconds: float, trained: bool = True) -> float:
    """Seconds that are left, once a phase has taken so many; 0 if nobody knows.

    Args:
      phase: its number.
      seconds: what it took.
      trained: False if its model was there already: that was faster than work.
    """
    if trained:
      before = 0.0 if self._took or not self._start else self._start[0]
      self._took.append((self._work[phase] * (1 - before), seconds))
    elif not self._took:
      self._start = None
    left = self.during(phase, 1.0, seconds) if self._took else 0.0
    self._seeds -= phase == len(self._work) - 1
    return left

  def during(self, phase: int, share: float, seconds: float) -> float:
    """Seconds that are left, once a share of a phase has been reached in so many."""
    if self._start is None:
      self._start = share, seconds
    began, since = self._start
    now = self._work[phase] * (share - began), seconds - since
    measured = self._took[2:] or self._took or [now]
    work, took = (sum(column) for column in zip(*measured, strict=True))
    rest = sum(self._work[phase:]) - self._work[phase] * share
    rest += sum(self._work) * (self._seeds - 1)
    return took / work * rest if work > 0 else 0.0
