"""How long the stages of a phase take."""

import time

from mnemonics_jax.progress import Event, StepReport


class Clock:
  """A `Report` that counts the seconds of each stage of a phase.

  Attributes:
    stage: the running one.
  """

  def __init__(self):
    self.restart({})

  def restart(self, seconds: dict[str, float]) -> None:
    """Goes on from these counts."""
    self._seconds, self.stage = dict(seconds), None
    self._since = time.monotonic()

  def __call__(self, event: Event) -> None:
    if isinstance(event, StepReport):
      self.read()
      self.stage = event.stage

  def read(self) -> dict[str, float]:
    """The counts until now."""
    now = time.monotonic()
    if self.stage is not None:
      spent = self._seconds.get(self.stage, 0.0) + now - self._since
      self._seconds[self.stage] = spent
    self._since = now
    return dict(self._seconds)
