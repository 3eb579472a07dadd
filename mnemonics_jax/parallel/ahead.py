"""Reading ahead: a thread gets the next items while the last one is used."""

import collections
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from mnemonics_jax.parallel import mesh

T, R = TypeVar("T"), TypeVar("R")


def read_ahead(
  read: Callable[[T], R], items: Iterable[T], ahead: int = 2
) -> Generator[R, None, None]:
  """`read(item)` for one item after the other, some before they are asked for.

  `read` runs in a thread, on the devices of the caller; `items` are iterated in
  the caller's own. What `read` raises is raised in place of its result. Whoever
  does not go to the end closes the iterator, or the thread stays.

  >>> list(read_ahead(lambda word: word.upper(), ["a", "b", "c"]))
  ['A', 'B', 'C']

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
