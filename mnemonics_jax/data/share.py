"""Several processes read a data set together: each a share, then they exchange."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

import numpy as np

from mnemonics_jax.data.dataset import DataError

_BLOCK_BYTES = 2**26  # What is under way at a time.
_MESSAGE_BYTES = 4096

Result = TypeVar("Result")


class Share(NamedTuple):
  """What one process reads, and how it hears of the rest.

  All processes call the same methods in the same order.

  Attributes:
    index: number of this process.
    count: number of processes.
    collect: takes an array, of the same shape and type in every process, and
      returns those of all of them along a new first axis.
  """

  index: int = 0
  count: int = 1
  collect: Callable[[np.ndarray], np.ndarray] = lambda mine: mine[None]

  def own(self, total: int) -> range:
    """The rows, of `total`, that this process reads."""
    return range(self.index, total, self.count)

  def complete(self, rows: np.ndarray) -> None:
    """Fills in the rows that others have read, in place."""
    if self.count == 1:
      return
    size = max(1, _BLOCK_BYTES // max(1, rows[:1].nbytes))
    mine = np.zeros((size, *rows.shape[1:]), rows.dtype)
    for start in range(0, len(rows), size * self.count):
      block = rows[start : start + size * self.count]
      own = block[self.index :: self.count]
      mine[: len(own)] = own
      for index, theirs in enumerate(self.collect(mine)):
        own = block[index :: self.count]
        own[:] = theirs[: len(own)]

  def all(self, mine: bool) -> bool:
    """Whether it is so in every process."""
    return bool(self.collect(np.array(mine)).all())

  def attempt(self, read: Callable[[], Result]) -> Result:
    """What `read` returns; if it fails in one process, it fails in all."""
    try:
      result, error, message = read(), None, b""
    except Exception as failure:
      result, error, message = None, failure, repr(failure).encode()
      if isinstance(failure, DataError):
        message = str(failure).encode()
    padded = message[:_MESSAGE_BYTES].ljust(_MESSAGE_BYTES, b"\0")
    messages = self.collect(np.frombuffer(padded, np.uint8))
    if error is not None:
      raise error
    for theirs in messages:
      if text := theirs.tobytes().rstrip(b"\0"):
        raise DataError(text.decode(errors="ignore"))
    return result  # pyright: ignore[reportReturnType]
