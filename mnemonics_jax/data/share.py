"""Several processes read a data set together: each a share, then they exchange."""

from collections.abc import Callable, Iterator
import contextlib
import hashlib
from typing import NamedTuple

import numpy as np

from mnemonics_jax.data.dataset import DataError

_BLOCK_BYTES = 2**26  # What is under way at a time.
_MESSAGE_BYTES = 4096


class Share(NamedTuple):
  """What one process reads, and how it hears of the rest.

  All processes call the same methods in the same order, within `together`.

  Attributes:
    index: number of this process.
    count: number of processes.
    collect: takes an array, of the same shape and type in every process, and
      returns those of all of them along a new first axis.
  """

  index: int = 0
  count: int = 1
  collect: Callable[[np.ndarray], np.ndarray] = lambda mine: mine[None]

  @contextlib.contextmanager
  def together(self) -> Iterator[None]:
    """If one process fails, the others fail with its message, and none waits."""
    try:
      yield
      self._hear()
    except _Theirs:
      raise
    except Exception as failure:
      known = isinstance(failure, DataError)
      self._tell(str(failure) if known else repr(failure))
      raise

  def own(self, total: int) -> range:
    """The rows, of `total`, that this process reads."""
    return range(self.index, total, self.count)

  def complete(self, rows: np.ndarray) -> None:
    """Fills in the rows that others have read, in place."""
    if self.count == 1 or len(rows) == 0:
      return
    size = _BLOCK_BYTES // (rows[0].nbytes * self.count)
    size = max(1, min(size, -(-len(rows) // self.count)))
    mine = np.zeros((size, *rows.shape[1:]), rows.dtype)
    for start in range(0, len(rows), size * self.count):
      block = rows[start : start + size * self.count]
      own = block[self.index :: self.count]
      mine[: len(own)] = own
      for index, theirs in enumerate(self._exchange(mine)):
        own = block[index :: self.count]
        own[:] = theirs[: len(own)]

  def all(self, mine: bool) -> bool:
    """Whether it is so in every process."""
    return bool(self._exchange(np.array(mine)).all())

  def same(self, *parts: bytes) -> bool:
    """Whether every process has the same bytes."""
    digest = hashlib.sha256(b"\n".join(parts)).digest()
    digests = self._exchange(np.frombuffer(digest, np.uint8))
    return bool((digests == digests[0]).all())

  def lead(self, work: Callable[[], None]) -> None:
    """Process 0 works first: others may find what it leaves on a common disk."""
    if self.index == 0:
      work()
    self.all(True)
    if self.index:
      work()

  def _exchange(self, array):
    self._hear()
    return self.collect(array)

  def _hear(self):
    """Raises what another process has told instead of going on."""
    for message in self._tell(""):
      if text := message.tobytes().rstrip(b"\0"):
        raise _Theirs(text.decode(errors="ignore"))

  def _tell(self, message):
    encoded = message.encode(errors="replace")[:_MESSAGE_BYTES]
    padded = encoded.ljust(_MESSAGE_BYTES, b"\0")
    return self.collect(np.frombuffer(padded, np.uint8))


class _Theirs(DataError):
  """The failure of another process."""
