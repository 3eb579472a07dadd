"""Keep a device busy: read ahead, and run calls of about a second."""

import collections
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
import contextlib
import time
from typing import TypeVar

from mnemonics_jax.parallel import mesh, processes

T, R = TypeVar("T"), TypeVar("R")

SECONDS_PER_CALL = 1.0


def read_ahead(
  read: Callable[[T], R], items: Iterable[T], ahead: int = 2
) -> Generator[R, None, None]:
  """Yields `read(item)` for each item, and reads some of them early.

  `read` runs in a thread, on the devices of the caller. The caller's thread
  iterates over `items`. An error of `read` is raised in place of its result. Close
  the iterator if you do not exhaust it; otherwise the thread stays.

  Args:
    read: loads an item, such as images from a disk to a device.
    items: what to read.
    ahead: results that are read, or being read, while one is used.
  """
  on_my_devices = mesh.here()

  def read_there(item):
    with on_my_devices():
      return read(item)

  thread = ThreadPoolExecutor(1, thread_name_prefix="read_ahead")
  waiting = collections.deque()
  try:
    for item in items:
      waiting.append(thread.submit(read_there, item))
      if len(waiting) > ahead:
        yield waiting.popleft().result()
    while waiting:
      yield waiting.popleft().result()
  finally:
    thread.shutdown(cancel_futures=True)


class Pace:
  """Chooses how many steps a call takes, so that it lasts about a second.

  Attributes:
    steps: of the next call.
  """

  def __init__(self):
    self.steps = 1

  @contextlib.contextmanager
  def timing(self, steps: int) -> Iterator[None]:
    """Times a call of this many steps, and updates `steps`."""
    began = time.perf_counter()
    yield
    rate = steps / (time.perf_counter() - began)
    self.steps = processes.all_max(max(1, int(SECONDS_PER_CALL * rate)))
