"""How many programs something makes XLA compile."""

from collections.abc import Iterator
import contextlib
from typing import Any

import jax

_COMPILED = "/jax/core/compile/backend_compile_duration"


class Count:
  """Programs compiled so far.

  Attributes:
    programs: their number.
  """

  def __init__(self):
    self.programs = 0

  def hear(self, event: str, duration: float, **_: str | int) -> None:
    del duration
    self.programs += event == _COMPILED


@contextlib.contextmanager
def counted() -> Iterator[Count]:
  """Counts the programs that are compiled within."""
  count = Count()
  hear: Any = count.hear
  jax.monitoring.register_event_duration_secs_listener(hear)
  try:
    yield count
  finally:
    jax.monitoring.unregister_event_duration_listener(hear)
