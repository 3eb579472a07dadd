"""Processes that read and decode images for one that learns.

Pillow decodes without the interpreter lock, but each image needs it for a tenth
of a millisecond: threads alone would feed a GPU, not a TPU host. A worker is a
plain `python -m mnemonics_jax.data.workers` which is asked through a pipe and
leaves pixels in memory that both see: an unnamed file, for which containers need
no larger /dev/shm and of which nothing can be left behind. It imports no JAX, does
not run the script that started it again, ends when the pipe does, and has no state
that matters: which worker gets which image changes nothing.
"""

from concurrent.futures import ThreadPoolExecutor
import contextlib
import functools
import json
import mmap
import os
from pathlib import Path
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, BinaryIO, NamedTuple
import warnings
import weakref

import numpy as np

from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.images import Draws, Pixels
from mnemonics_jax.data.shards import ROW, Shards, Table

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
        pixels[these] = _ask(worker, rows[these], drawn)
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
  """A process, and where it leaves the images of a request."""

  process: subprocess.Popen
  pixels: Pixels


def _start(shards: Shards) -> _Worker:
  # The same package, wherever this process has found it.
  package = str(Path(__file__).parents[2])
  paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
  with _unnamed_file(_AT_ONCE * shards.size**2 * 3) as file:
    process = subprocess.Popen(
      [sys.executable, "-m", "mnemonics_jax.data.workers"],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      pass_fds=[file.fileno()],
      env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
    _send(
      process.stdin,
      {
        "directory": str(shards.directory.absolute()),
        "files": shards.files,
        "size": shards.size,
        "decoder": shards.decoder,
        "pixels": file.fileno(),
      },
    )
    return _Worker(process, _pixels_in(file.fileno(), shards.size))


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
  for process, _ in started:
    with contextlib.suppress(BrokenPipeError):  # It has been killed.
      process.stdin.close()  # pyright: ignore[reportOptionalMemberAccess]
  for process, _ in started:
    process.stdout.close()  # pyright: ignore[reportOptionalMemberAccess]
    process.wait()


def _send(pipe, message: dict, *arrays: np.ndarray) -> None:
  pipe.write(json.dumps(message).encode() + b"\n")
  for array in arrays:
    pipe.write(np.ascontiguousarray(array).data)
  pipe.flush()


def _ask(worker: _Worker, rows: Table, draws: Draws | None) -> Pixels:
  """The views that a worker makes, until it is asked again."""
  process, pixels = worker
  message, arrays = {"count": len(rows)}, [rows]
  if draws is not None:
    message |= {"seed": draws.seed, "epoch": draws.epoch}
    arrays.append(draws.rows.astype(np.int64))
  try:
    _send(process.stdin, message, *arrays)
    answer = json.loads(process.stdout.readline() or "null")  # pyright: ignore[reportOptionalMemberAccess]
    if answer is None:
      raise EOFError
  except (OSError, EOFError) as error:
    raise DataError(
      "workers",
      f"A process that reads images has ended (exit code {process.wait()})",
      "see what it has said, or choose fewer `workers` if memory was short",
    ) from error
  if answer:
    field, problem, fix = answer["error"]
    raise DataError(field, problem, fix)
  return pixels[: len(rows)]


def main(requests: BinaryIO, answers: BinaryIO) -> None:
  """A worker: answers until nobody asks any more."""
  # Who stops the run stops all its processes, but the one that learns still
  # wants to finish a step; when it has ended, the pipe ends.
  for number in (signal.SIGINT, signal.SIGTERM):
    signal.signal(number, signal.SIG_IGN)
  warnings.simplefilter("ignore")  # Pillow's remarks on odd but readable files.
  setup = json.loads(requests.readline())
  shards = Shards(
    Path(setup["directory"]),
    tuple(setup["files"]),
    setup["size"],
    setup["decoder"],
  )
  pixels = _pixels_in(setup["pixels"], shards.size)
  while line := requests.readline():
    message = json.loads(line)
    rows = _receive(requests, message["count"], ROW)
    draws = None
    if "seed" in message:
      drawn = _receive(requests, message["count"], np.dtype(np.int64))
      draws = Draws(message["seed"], message["epoch"], drawn)
    try:
      pixels[: len(rows)] = shards.views(rows, draws)
    except DataError as error:
      _send(answers, {"error": [error.field, error.problem, error.fix]})
    else:
      _send(answers, {})


def _receive(pipe, count, dtype):
  return np.frombuffer(pipe.read(count * dtype.itemsize), dtype)


if __name__ == "__main__":
  try:
    main(sys.stdin.buffer, sys.stdout.buffer)
  except BrokenPipeError:  # Nobody listens any more.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
