"""The harness of all benchmarks: a command, its contestants, and its results.

A shared machine is fast in one minute and slow in the next. Contestants therefore live
in processes of their own and take turns (A, B, A, B, ...). Their fastest turns are
compared.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import ctypes
import datetime
import functools
import gc
import importlib
import importlib.metadata
import importlib.util
import json
import multiprocessing
import os
from pathlib import Path
import platform
import resource
import runpy
import subprocess
import sys
import tempfile
import time
import traceback
from typing import Any, NamedTuple

from absl import flags

ROOT = Path(__file__).parents[1]

# Key of a row -> title of its column, and how its value is written; or a row's columns.
Form = str | Callable[[Any], str]
Shown = Mapping[str, tuple[str, Form]] | Callable[[Any], Mapping[str, str]]


class Benchmark:
  """The command of a benchmark: `python -m benchmarks.NAME`.

  Every part prints a table and writes it at once: the next one may not survive. Parts
  that are not measured again stay what they were in the JSON.

  Args:
    name: of the benchmark.
    parts: what makes each table; --parts chooses among them.
    quick: names of the parts that --quick measures; all by default.
    **options: other flags: their default (or their type, if that is None) and help.

  Attributes:
    options: the values of all flags.
    folder: for files of this run.
  """

  def __init__(
    self,
    name: str,
    parts: Mapping[str, Callable[["Benchmark"], None]],
    *,
    quick: Sequence[str] | None = None,
    **options: tuple[Any, str],
  ):
    self.name, self._parts, self._quick = name, parts, quick
    self.options: Any = flags.FlagValues()
    common = {
      "quick": (False, "Small sizes, about a minute."),
      "output": (str, "JSON file; the default is below benchmarks/results."),
      "parts": ([*parts], "Tables to make."),
      "rounds": (3, "Turns of each contestant; the fastest counts."),
      "threads": (2, "Processors a contestant uses."),
    }
    for flag, (default, words) in {**common, **options}.items():
      kind = default if isinstance(default, type) else type(default)
      _DEFINE[kind](
        flag,
        None if default is kind else default,
        words,
        flag_values=self.options,
      )
    self.folder = Path()
    self._written: dict[str, Any] = {}

  def run(self) -> None:
    """Measures the parts that the command line asks for."""
    doc = sys.modules["__main__"].__doc__ or ""
    if {"-h", "-help", "--help"} & {*sys.argv[1:]}:
      print(f"{doc}\n{self.options.get_help()}")
      return
    try:
      wanted = self.wanted(sys.argv)
    except flags.Error as error:
      sys.exit(f"{error}\n--help lists all flags")
    path = self._path()
    if path.exists():
      self._written = json.loads(path.read_text())
    with tempfile.TemporaryDirectory() as folder:
      self.folder = Path(folder)
      for part in wanted:
        self._parts[part](self)

  def wanted(self, argv: Sequence[str]) -> list[str]:
    """The parts that a command line asks for, which sets the options."""
    self.options(argv)
    if self.options.quick and self._quick and not self.options["parts"].present:
      return [*self._quick]
    if other := {*self.options.parts} - {*self._parts}:
      raise flags.Error(f"--parts={min(other)} is none of {[*self._parts]}")
    return self.options.parts

  def _path(self) -> Path:
    quick = "_quick" if self.options.quick else ""
    default = ROOT / f"benchmarks/results/{self.name}{quick}.json"
    return Path(self.options.output or default)

  @property
  def rounds(self) -> int:
    """Turns of each contestant; with --quick one, unless they are asked for."""
    once = self.options.quick and not self.options["rounds"].present
    return 1 if once else self.options.rounds

  def contestant(self, factory: str, **options: Any) -> "Contestant":
    """Begins a contestant; `factory` is a `module:function` of this package."""
    factory = f"benchmarks.{factory}"
    return Contestant(factory, threads=self.options.threads, **options)

  def compare(
    self, entrants: Mapping[str, Mapping[str, Any]], *, warm_up: bool = False
  ) -> dict[str, "Outcome"]:
    """Lets contestants take turns; those that fail are told of, and left out.

    Args:
      entrants: by name the arguments of `contestant`.
      warm_up: whether the first turn of each is not counted.
    """
    with contextlib.ExitStack() as stack:
      playing: dict[str, Contestant] = {}
      results: dict[str, Any] = {}
      samples: dict[str, list[Sample]] = {name: [] for name in entrants}

      def attempt(name: str, act: Callable[[], Any]) -> Any:
        try:
          return act()
        except ContestantError as error:
          print(f"{name} failed: {error}\n", flush=True)
          playing.pop(name, None)

      for name, options in entrants.items():
        begin = functools.partial(self.contestant, **options)
        if (one := attempt(name, begin)) is not None:
          playing[name] = stack.enter_context(one)
      for number in range(self.rounds + warm_up):
        for name, one in [*playing.items()]:
          if (sample := attempt(name, one.turn)) is not None:
            samples[name].append(sample)
            if number == 0:
              results[name] = one.result()
      return {
        name: Outcome(samples[name][warm_up:], results[name], one.facts)
        for name, one in playing.items()
      }

  def add(
    self,
    name: str,
    title: str,
    rows: Sequence[Mapping[str, Any]],
    shown: Shown,
    **facts: Any,
  ) -> None:
    """Prints a table and writes its rows.

    Args:
      name: of the table in the JSON.
      title: what it is about.
      rows: what was measured.
      shown: columns to print; a row may lack some.
      **facts: what else the numbers depend on.
    """
    written = table([_columns(row, shown) for row in rows])
    print(f"{title}\n\n{written}\n", flush=True)
    self._written[name] = {
      "date": datetime.date.today().isoformat(),
      "machine": machine() | {"threads": self.options.threads},
      "versions": _versions(),
      **facts,
      "rows": rows,
    }
    path = self._path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(self._written, indent=2) + "\n")


_DEFINE: Mapping[type, Any] = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  str: flags.DEFINE_string,
  list: flags.DEFINE_list,
}


def _columns(row: Mapping[str, Any], shown: Shown) -> Mapping[str, str]:
  if callable(shown):
    return shown(row)
  write = lambda value, form: (
    form.format(value) if isinstance(form, str) else form(value)
  )
  return {
    title: "" if row[key] is None else write(row[key], form)
    for key, (title, form) in shown.items()
    if key in row
  }


def mebibytes(count: float) -> str:
  return f"{count / 2**20:,.0f} MiB"


def table(rows: Sequence[Mapping[str, Any]]) -> str:
  """Rows as an aligned table that is also Markdown: text left, numbers right."""
  if not rows:
    return "Nothing was measured."
  names = list(dict.fromkeys(name for row in rows for name in row))
  cells = [names] + [[str(row.get(name, "")) for name in names] for row in rows]
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


def has_torch() -> bool:
  """Whether PyTorch can compete; says how to install it if not."""
  found = importlib.util.find_spec("torch") is not None
  if not found:
    print("PyTorch is not installed: pip install -e '.[bench]'\n")
  return found


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


def best(samples: Sequence[Sample]) -> Sample:
  """The fastest times and the highest peak."""
  wall, cpu, peak = zip(*samples, strict=True)
  return Sample(min(wall), min(cpu), max(peak))


class Outcome(NamedTuple):
  """What a contestant has shown.

  Attributes:
    samples: its turns.
    result: what its first turn returned.
    facts: about its setup.
  """

  samples: list[Sample]
  result: Any
  facts: dict[str, Any]

  @property
  def best(self) -> Sample:
    return best(self.samples)


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


class Command:
  """`python -m experiments.NAME ...` in a process of its own, which is watched.

  Args:
    *line: its name and flags.
    **environment: variables that it finds beside those of this process.
  """

  def __init__(self, *line: str, **environment: str):
    self._began = time.perf_counter()
    self.process = subprocess.Popen(
      [sys.executable, "-m", "benchmarks.measure", *line],
      cwd=ROOT,
      env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )
    self._text: list[str] = []

  def lines(self) -> Iterator[tuple[float, str]]:
    """What it prints, and after how many seconds."""
    assert self.process.stdout is not None
    for line in self.process.stdout:
      self._text.append(line)
      yield time.perf_counter() - self._began, line

  def end(self) -> dict[str, Any]:
    """Waits for it; what it took, see `_watched`, and its `seconds`."""
    for _ in self.lines():
      pass
    if self.process.wait():
      raise RuntimeError("".join(self._text))
    seconds = time.perf_counter() - self._began
    facts = next(row for row in reversed(self._text) if row.startswith("{"))
    return json.loads(facts) | {"seconds": seconds}


_SPANS = {
  "/jax/core/compile/jaxpr_trace_duration": "trace",
  "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
  "/jax/core/compile/backend_compile_duration": "compile",
}


def _watched(line: Sequence[str]) -> None:
  """Runs a command; prints seconds by kind of work, programs and peak memory.

  Spans that overlap count once.
  """
  began = time.time()
  import jax

  spans = []
  listen: Any = lambda event, start, end, **_: spans.append((event, start, end))
  jax.monitoring.register_event_time_span_listener(listen)
  sys.argv = list(line)
  times = {"import": time.time() - began, "trace": 0.0, "lower": 0.0}
  times["compile"] = until = 0.0
  try:
    runpy.run_module(f"experiments.{line[0]}", run_name="__main__")
  except SystemExit as end:
    if end.code:
      raise
  for event, start, end in sorted(spans, key=lambda span: span[1:]):
    if event in _SPANS:
      times[_SPANS[event]] += max(0.0, end - max(start, until))
      until = max(until, end)
  programs = sum(_SPANS.get(event) == "compile" for event, *_ in spans)
  facts = {"programs": programs, "cpu": sum(os.times()[:4])}
  print(json.dumps({**times, **facts, "peak_bytes": peak_bytes()}))


if __name__ == "__main__":
  _watched(sys.argv[1:])
