"""Lets several processes read a data set: each decodes a share, then all get all."""

from collections.abc import Callable, Iterable, Iterator
import contextlib
import hashlib
from typing import NamedTuple

import numpy as np

from mnemonics_jax.data.dataset import DataError

_BLOCK_BYTES = 2**26  # Exchanged at a time.
_TEXT_BYTES = 2048  # Of each part of an error; the rest is cut off.


class Share(NamedTuple):
  """The rows of a data set that this process decodes, and how it gets the rest.

  By default there is one process, which decodes everything. All processes must call
  the same methods in the same order, within `relay_errors`.

  Attributes:
    index: number of this process.
    count: number of processes.
    all_gather: takes an array, of the same shape and type in every process, and
      returns those of all of them along a new first axis.
  """

  index: int = 0
  count: int = 1
  all_gather: Callable[[np.ndarray], np.ndarray] = lambda array: array[None]

  @contextlib.contextmanager
  def relay_errors(self) -> Iterator[None]:
    """If one process fails, the others fail with its message, and none waits."""
    try:
      yield
      self._raise_relayed()
    except _RelayedError:
      raise
    except DataError as error:
      self._gather_errors(error.field, error.problem, error.fix)
      raise
    except Exception as error:
      self._gather_errors(
        "data_dir", f"Another process failed: {error!r}", "see what it has said"
      )
      raise

  def rows(self, total: int) -> range:
    """The rows, of `total`, that this process decodes."""
    return range(self.index, total, self.count)

  def all_gather_rows(self, array: np.ndarray) -> None:
    """Fills in, in place, the rows that other processes have decoded."""
    if self.count == 1 or len(array) == 0:
      return
    size = _BLOCK_BYTES // (array[0].nbytes * self.count)
    size = max(1, min(size, -(-len(array) // self.count)))
    sent = np.zeros((size, *array.shape[1:]), array.dtype)
    for start in range(0, len(array), size * self.count):
      block = array[start : start + size * self.count]
      decoded = block[self.index :: self.count]
      sent[: len(decoded)] = decoded
      for index, received in enumerate(self._checked_gather(sent)):
        rows = block[index :: self.count]
        rows[:] = received[: len(rows)]

  def all_true(self, value: bool) -> bool:
    """Whether it is true in every process."""
    return bool(self._checked_gather(np.array(value)).all())

  def all_equal(self, parts: Iterable[bytes]) -> bool:
    """Whether every process has the same bytes, of which there may be many."""
    digest = hashlib.sha256()
    for part in parts:
      digest.update(part + b"\n")
    digests = self._checked_gather(np.frombuffer(digest.digest(), np.uint8))
    return bool((digests == digests[0]).all())

  def check_equal(self, parts: Iterable[bytes], problem: str) -> None:
    """Refuses data of which another process has other bytes."""
    if not self.all_equal(parts):
      raise DataError(
        "data_dir", f"{problem} on another machine", "all must see the same"
      )

  def first_process_first(self, work: Callable[[], None]) -> None:
    """Process 0 works first: others may find what it leaves on a common disk."""
    if self.index == 0:
      work()
    self.all_true(True)  # A barrier.
    if self.index:
      work()

  def _checked_gather(self, array):
    self._raise_relayed()
    return self.all_gather(array)

  def _raise_relayed(self):
    """Raises the error of another process."""
    for rows in self._gather_errors("", "", ""):
      parts = [
        row.tobytes().rstrip(b"\0").decode(errors="ignore") for row in rows
      ]
      if any(parts):
        raise _RelayedError(*parts)

  def _gather_errors(self, *parts):
    """Field, problem and fix of every process; empty without an error."""
    encoded = [part.encode(errors="replace")[:_TEXT_BYTES] for part in parts]
    padded = b"".join(text.ljust(_TEXT_BYTES, b"\0") for text in encoded)
    return self.all_gather(np.frombuffer(padded, np.uint8).reshape(3, -1))


class _RelayedError(DataError):
  """The failure of another process."""
