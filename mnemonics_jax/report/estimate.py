"""How long a run will take, measured at its beginning; durations in words."""

from collections.abc import Callable
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
  """A `Report` that says once, after the first steps, how long a run will take.

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
        f"Estimated duration: about {format_duration(pace * self._work)}"
        f" after compilation ({pace:.3g} s per training step, measured)."
      )
