"""Keeping a device busy: reading ahead, and calls that take about a second."""

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
  """`read(item)` for one item after the other, some before they are asked for.

  `read` runs in a thread, on the devices of the caller; `items` are iterated in
  the caller's own. What `read` raises is raised in place of its result. Whoever
  does not go to the end closes the iterator, or the thread stays.

  Args:
    read: gets an item, such as images from a disk to a device.
    items: what to get.
    ahead: results that are there, or under way, while one is used.
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
