"""Which convolutions a run uses: they decide its bits, not its results.

Kernels of our own, compiled on this machine, and XLA's differ in the last digit.
A run remembers them, and whoever continues it with others is told.
"""

from typing import Any
import zlib

import jax

from mnemonics_jax import cpu_conv
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import processes

FIELD = "convolutions"


def used() -> str:
  """Those of this process: `xla`, or `native-` and the name of their build."""
  if jax.default_backend() != "cpu":
    return "xla"
  return cpu_conv.choose().name


def news() -> str | None:
  """How it came to them, if a person should know; None when it was said."""
  return cpu_conv.news() if jax.default_backend() == "cpu" else None


def change_since(info: dict[str, Any]) -> str | None:
  """A phrase if what `info` tells about was computed with others.

  Args:
    info: of a checkpoint, or an environment.
  """
  before, now = info.get(FIELD), used()
  if before in (None, now):
    return None
  return f"convolutions are now {now}, were {before}"


def check_processes() -> None:
  """Refuses processes of one run whose copies of the model would drift apart."""
  if not processes.all_equal(zlib.crc32(used().encode()) >> 1):
    raise UserError(
      cpu_conv.VARIABLE,
      "the processes would compute convolutions in different ways",
      f"set {cpu_conv.VARIABLE}=xla on all machines",
    )
