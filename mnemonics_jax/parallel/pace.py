"""How many steps go into one call of a compiled loop."""

from collections.abc import Iterator
import contextlib
import time

from mnemonics_jax.parallel import processes

SECONDS_PER_CALL = 1.0


class Pace:
  """Long epochs return to the host about once a second, to show progress.

  Attributes:
    steps: of the next call.
  """

  def __init__(self):
    self.steps = 1

  @contextlib.contextmanager
  def timing(self, steps: int) -> Iterator[None]:
    """Times a call of so many steps, and decides on the next one's."""
    began = time.perf_counter()
    yield
    rate = steps / (time.perf_counter() - began)
    self.steps = processes.all_max(max(1, int(SECONDS_PER_CALL * rate)))
