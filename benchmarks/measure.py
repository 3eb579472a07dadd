"""Contestants of a benchmark: each in a process of its own, run in turn.

A shared machine is fast in one minute and slow in the next. Contestants
therefore take turns (A, B, A, B, ...) and are compared by their fastest turns.
"""

from collections.abc import Callable, Mapping, Sequence
import contextlib
import ctypes
import datetime
import gc
import importlib
import importlib.metadata
import json
import multiprocessing
import os
import pathlib
import platform
import resource
import sys
import time
import traceback
from typing import Any, NamedTuple


class Sample(NamedTuple):
  """One turn.

  Attributes:
    seconds: wall-clock time.
    cpu_seconds: the same over all threads of the process.
    peak_bytes: most resident memory since setup, less what setup left behind.
  """

  seconds: float
  cpu_seconds: float
  peak_bytes: int


class ContestantError(RuntimeError):
  """A contestant that raised or was killed, most likely for its memory."""


class Contestant:
  """A function that lives in another process.

  Args:
    factory: `module:function`, which runs over there and returns the step to
      time (or None) and a dict of facts about its setup. By name, so that no
      contestant has to import what another one needs.
    threads: processors the process may use.
    environment: variables that it finds beside those of this process.
    **kwargs: arguments of the factory.
  """

  def __init__(
    self,
    factory: str,
    *,
    threads: int,
    environment: Mapping[str, str] | None = None,
    **kwargs,
  ):
    spawn = multiprocessing.get_context("spawn")
    self._pipe, there = spawn.Pipe()
    self._process = spawn.Process(
      target=_serve,
      args=(there, factory, threads, environment or {}, kwargs),
      daemon=True,
    )
    self._process.start()
    there.close()
    self.facts: dict[str, Any] = self._answer()

  def turn(self) -> Sample:
    self._pipe.send("turn")
    return self._answer()

  def result(self) -> Any:
    """What the last turn returned."""
    self._pipe.send("result")
    return self._answer()

  def close(self):
    self._pipe.close()  # the other side ends when it has nobody to answer
    self._process.join()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    self.close()

  def _answer(self):
    try:
      answer = self._pipe.recv()
    except EOFError:
      self._process.join()
      code = self._process.exitcode
      raise ContestantError(f"ended with exit code {code}") from None
    if isinstance(answer, _Failure):
      raise ContestantError(answer.text)
    return answer


class _Failure(NamedTuple):
  text: str


def _serve(pipe, factory, threads, environment, kwargs):
  _confine(threads)
  os.environ.update(environment)
  module, function = factory.split(":")
  try:
    make = getattr(importlib.import_module(module), function)
    step, facts = make(**kwargs)
    _give_back()
    baseline = _forget_peak()
    pipe.send(facts)
    result = None
    while True:
      if pipe.recv() == "result":
        pipe.send(result)
        continue
      result = None
      wall, cpu = time.perf_counter(), time.process_time()
      result = step()
      wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
      peak = peak_bytes() - baseline
      _give_back()  # whoever comes next may need all there is
      pipe.send(Sample(wall, cpu, peak))
  except (EOFError, BrokenPipeError):
    pass  # Nobody is left to answer.
  except Exception:  # Whatever it is, the other side raises it again.
    pipe.send(_Failure(traceback.format_exc()))


def _confine(threads):
  os.environ["OMP_NUM_THREADS"] = str(threads)
  if sys.platform == "linux":
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:threads])
    # If memory runs out, the benchmark goes before anybody else's work.
    with open("/proc/self/oom_score_adj", "w") as file:
      file.write("900")


def _give_back():
  """Returns freed blocks to the system; they would hide later allocations."""
  gc.collect()
  if sys.platform == "linux":
    ctypes.CDLL(None).malloc_trim(0)


def _forget_peak() -> int:
  """Starts a new peak of resident memory where the process is now."""
  if sys.platform == "linux":
    with open("/proc/self/clear_refs", "w") as file:
      file.write("5")
  return peak_bytes()


def peak_bytes() -> int:
  """The most resident memory that this process has had."""
  unit = 1 if sys.platform == "darwin" else 1024
  return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def take_turns(
  contestants: Mapping[str, Contestant], rounds: int
) -> dict[str, list[Sample]]:
  """Every contestant once, and again, `rounds` times."""
  samples: dict[str, list[Sample]] = {name: [] for name in contestants}
  for _ in range(rounds):
    for name, contestant in contestants.items():
      samples[name].append(contestant.turn())
  return samples


def best(samples: Sequence[Sample]) -> Sample:
  """The fastest times and the highest peak."""
  wall, cpu, peak = zip(*samples, strict=True)
  return Sample(min(wall), min(cpu), max(peak))


def table(rows: Sequence[Mapping[str, Any]]) -> str:
  """Rows as an aligned table that is also Markdown: text left, numbers right."""
  names = list(rows[0])
  cells = [names] + [[str(row[name]) for name in names] for row in rows]
  widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
  lines = [
    "| "
    + " | ".join(
      cell.ljust(width) if i == 0 else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths, strict=True))
    )
    + " |"
    for line in cells
  ]
  rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
  lines.insert(1, "| " + " | ".join(rule) + " |")
  return "\n".join(lines)


class Results:
  """The JSON of a benchmark: for each part its rows, and when and where.

  Parts that are not measured again stay what they were.

  Args:
    name: of the benchmark.
    path: the file; None is the benchmark's own below `benchmarks/results`.
    quick: whether these are not the numbers to be quoted.
    threads: processors that were used, if it matters.
  """

  def __init__(
    self,
    name: str,
    path: str | None,
    quick: bool,
    threads: int | None = None,
  ):
    default = f"benchmarks/results/{name}{'_quick' if quick else ''}.json"
    self._path, self._threads = pathlib.Path(path or default), threads
    self._path.parent.mkdir(parents=True, exist_ok=True)
    self._parts: dict[str, Any] = {}
    if self._path.exists():
      self._parts = json.loads(self._path.read_text())

  def add(
    self,
    name: str,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    shown: Callable[[Any], Mapping[str, Any]],
    **facts: Any,
  ) -> None:
    """Prints a part and writes it: the next one may not survive.

    Args:
      name: of the part.
      title: what its table is about.
      rows: what was measured.
      shown: a row as it is printed.
      **facts: what else the numbers depend on.
    """
    print(f"{title}\n\n{table([shown(row) for row in rows])}\n", flush=True)
    self._parts[name] = {
      "date": datetime.date.today().isoformat(),
      "machine": machine() | {"threads": self._threads},
      "versions": _versions(),
      **facts,
      "rows": rows,
    }
    self._path.write_text(json.dumps(self._parts, indent=2) + "\n")


def _versions() -> dict[str, str]:
  found = {"python": platform.python_version()}
  for package in ("jax", "jaxlib", "numpy", "torch"):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
      found[package] = importlib.metadata.version(package)
  return found


def machine() -> dict[str, Any]:
  """What the numbers depend on."""
  name = ""
  if os.path.exists("/proc/cpuinfo"):
    with open("/proc/cpuinfo") as file:
      names = [line for line in file if line.startswith("model name")]
    name = names[0].split(":")[1].strip() if names else ""
  return {
    "cpu": name,
    "cores": os.cpu_count(),
    "load": os.getloadavg(),
    "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
  }
