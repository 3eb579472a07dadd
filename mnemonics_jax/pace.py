"""How many steps go into one call of a compiled loop."""

from mnemonics_jax import devices

SECONDS_PER_CALL = 1.0


class Pace:
  """Long epochs return to the host about once a second, to show progress.

  Attributes:
    steps: of the next call.
  """

  def __init__(self):
    self.steps = 1

  def measure(self, steps: int, seconds: float) -> None:
    """A call of so many steps took that long."""
    self.steps = devices.agree(max(1, int(SECONDS_PER_CALL * steps / seconds)))
