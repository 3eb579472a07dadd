"""Processes that read and decode images for the one that learns.

Pillow decodes without the interpreter lock, but each image needs the lock for a
tenth of a millisecond: threads alone would feed a GPU, not a TPU host. A worker is a
plain `python -m mnemonics_jax.data.workers`, which is asked through a pipe. It writes
pixels to memory that both processes see: an unnamed file, which needs no larger
/dev/shm and cannot be left behind. It imports no JAX, does not run the caller's
script again, and ends when the pipe does. Which worker reads which image changes
nothing. (Sending pixels through pipes, as pools of joblib and of Python do, costs
the process that learns 2.5 times the CPU seconds.)
"""

from concurrent.futures import ThreadPoolExecutor
import contextlib
import dataclasses
import functools
import mmap
from multiprocessing.connection import Connection, Pipe
import os
from pathlib import Path
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, NamedTuple
import warnings
import weakref

import numpy as np

from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.images import Draws, Pixels
from mnemonics_jax.data.shards import Shards, Table

_AT_ONCE = 16  # Images of a request, at most.


class Pool:
  """Workers that give views of photographs.

  Args:
    shards: where the photographs are.
    count: number of processes; they start at the first request.
  """

  def __init__(self, shards: Shards, count: int):
    self._shards, self._count = shards, count
    self._starting = threading.Lock()

  def views(self, rows: Table, draws: Draws | None = None) -> Pixels:
    """As `Shards.views`, from many processes; may be called by many threads."""
    shape = len(rows), self._shards.size, self._shards.size, 3
    pixels = np.empty(shape, np.uint8)
    with self._starting:  # One thread starts them, others wait.
      threads, idle = self._workers
    size = max(1, min(_AT_ONCE, -(-len(rows) // (2 * self._count))))

    def ask(start: int) -> None:
      these = slice(start, start + size)
      drawn = draws and draws._replace(rows=draws.rows[these])
      worker = idle.get()
      try:
        pixels[these] = worker.views(rows[these], drawn)
      finally:
        idle.put(worker)

    for _ in threads.map(ask, range(0, len(rows), size)):
      pass
    return pixels

  @functools.cached_property
  def _workers(self):
    """Threads that wait for workers, and the workers that have nothing to do."""
    threads = ThreadPoolExecutor(self._count, "reading")
    idle = queue.SimpleQueue()
    started = []
    for _ in range(self._count):
      started.append(_start(self._shards))
      idle.put(started[-1])
    weakref.finalize(self, _stop, threads, started)
    return threads, idle


class _Worker(NamedTuple):
  """A process, the pipe to it, and where it leaves the images of a request."""

  process: subprocess.Popen
  pipe: Connection
  pixels: Pixels

  def views(self, rows: Table, draws: Draws | None) -> Pixels:
    """What the worker makes; it is there until the next request."""
    try:
      self.pipe.send((rows, draws))
      error = self.pipe.recv()
    except (OSError, EOFError) as ended:
      code = self.process.wait()
      raise DataError(
        "workers",
        f"A process that reads images has ended (exit code {code})",
        "see what it has said, or choose fewer `workers` if memory was short",
      ) from ended
    if error is not None:
      raise DataError(*error)
    return self.pixels[: len(rows)]


def _start(shards: Shards) -> _Worker:
  # The same package, wherever this process has found it.
  package = str(Path(__file__).parents[2])
  paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
  pipe, theirs = Pipe()
  with theirs, _unnamed_file(_AT_ONCE * shards.size**2 * 3) as file:
    passed = theirs.fileno(), file.fileno()
    process = subprocess.Popen(
      [sys.executable, "-m", __name__, *map(str, passed)],
      stdin=subprocess.DEVNULL,
      pass_fds=passed,
      env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    directory = shards.directory.absolute()
    pipe.send(dataclasses.replace(shards, directory=directory))
    return _Worker(process, pipe, _pixels_in(file.fileno(), shards.size))


def _unnamed_file(size: int) -> IO[bytes]:
  """In memory where the system has such files."""
  if hasattr(os, "memfd_create"):
    file = os.fdopen(os.memfd_create("images"), "w+b")
  else:
    file = tempfile.TemporaryFile()  # noqa: SIM115
  file.truncate(size)
  return file


def _pixels_in(descriptor: int, size: int) -> Pixels:
  """The images of a request, as long as the array lives."""
  memory = mmap.mmap(descriptor, _AT_ONCE * size**2 * 3)
  return np.frombuffer(memory, np.uint8).reshape(_AT_ONCE, size, size, 3)


def _stop(threads: ThreadPoolExecutor, started: list[_Worker]) -> None:
  threads.shutdown(cancel_futures=True)
  for worker in started:
    worker.pipe.close()
  for worker in started:
    worker.process.wait()


def main(pipe: Connection, memory: int) -> None:
  """A worker: answers until nobody asks any more.

  Args:
    pipe: brings the shards, then requests; answers go back.
    memory: descriptor of the file that takes the pixels.
  """
  # A signal that stops the run reaches all its processes. The one that learns
  # still wants to finish a step; when it has ended, the pipe ends.
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
  warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files.
  shards = pipe.recv()
  pixels = _pixels_in(memory, shards.size)
  while True:
    rows, draws = pipe.recv()
    answer = None
    try:
      pixels[: len(rows)] = shards.views(rows, draws)
    except DataError as error:
      answer = error.field, error.problem, error.fix
    pipe.send(answer)


if __name__ == "__main__":
  # Nobody asks any more, or nobody listens.
  with contextlib.suppress(EOFError, ConnectionError):
    main(Connection(int(sys.argv[1])), int(sys.argv[2]))
