"""Compiled code: how many programs XLA compiles, and kernels that commands share."""

from collections.abc import Iterator
import contextlib
from pathlib import Path
from typing import Any

import jax

from mnemonics_jax import files

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


def share_kernels(caches: Path) -> None:
  """Lets commands that keep their caches in `caches` find the kernels of this user."""
  own = files.user_cache() / "native"
  theirs = caches / own.parent.name / own.name
  if own.exists() and not theirs.exists():
    theirs.parent.mkdir(parents=True, exist_ok=True)
    theirs.symlink_to(own, target_is_directory=True)
