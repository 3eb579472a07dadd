"""What is compiled when: at the start of a command, and in phase after phase.

  python -m benchmarks.start                 # some minutes; CIFAR-100 if it is there
  python -m benchmarks.start --parts=cifar
  python -m benchmarks.start --parts=phases  # 25 phases, some minutes
  python -m benchmarks.start --quick         # digits at smoke size, and five phases

Each command starts three times in a home of its own: with no cache of compiled
programs, with the cache of that start, and once more to continue a run that was
stopped after its first epoch. Tracing and compiling are counted as JAX reports
them, spans that overlap once; reading a program from the cache counts as compiling.
CPU seconds are those of the whole start, compilers of kernels included.

The part `phases` counts the programs that each of 25 phases compiles. Digits have ten
classes, too few for that. Here every fifth image of a digit makes a class of its own:
50 classes of about 29 images, 25 of them in phase 0 and one in each later phase. As
classes they are nonsense, but the work of a phase is real: LUCIR, learned and adjusted
exemplars, a fine-tune.
"""

from collections.abc import Iterator
import dataclasses
import functools
import os
import time
from typing import TYPE_CHECKING, Any

from benchmarks.measure import Benchmark, Command

if TYPE_CHECKING:
  from mnemonics_jax.data import Dataset

_COMMANDS = {
  "smoke": ["digits", "--preset=smoke"],
  "digits": ["digits"],
  "cifar": [
    *("cifar", "--preset=short", "--images_per_class=50", "--base_epochs=2"),
    "--exemplars=mnemonics",
  ],
}
_SPLIT = 5
_COMPILED = "/jax/core/compile/backend_compile_duration"


def starts(bench: Benchmark, part: str) -> None:
  """Where the seconds go until the first epoch of a command has ended."""
  command = _COMMANDS[part]
  if part == "cifar" and "MNEMONICS_DATA_DIR" not in os.environ:
    return
  bench.add(
    "_".join(command).replace("--", ""),
    f"python -m experiments.{' '.join(command)}",
    list(_three(bench, command)),
    {
      "name": ("start", "{}"),
      **{
        name: (name, "{:.1f} s")
        for name in ("import", "trace", "lower", "compile")
      },
      "programs": ("programs", "{}"),
      "first_epoch": ("first epoch after", "{:.1f} s"),
      "seconds": ("whole", "{:.1f} s"),
      "cpu": ("CPU", "{:.1f} s"),
    },
  )


def _three(bench: Benchmark, command: list[str]) -> Iterator[dict[str, Any]]:
  home = bench.folder / command[-1]
  begin = lambda run, *more: Command(
    *command, f"--workdir={home}/{run}", *more, XDG_CACHE_HOME=f"{home}/cache"
  )
  for name, run in [
    ("empty cache", "first"),
    ("full cache", "second"),
    ("continued", "stopped"),
  ]:
    if run == "stopped":
      stopped = begin(run, "--checkpoint_every=1")
      _first_epoch(stopped)
      stopped.process.terminate()
      stopped.process.wait()
    started = begin(run)
    first = _first_epoch(started)
    yield {"name": name, "first_epoch": first, **started.end()}


def _first_epoch(command: Command) -> float:
  """Seconds until a command tells of its first epoch."""
  for seconds, line in command.lines():
    if " · epoch " in line:
      return seconds
  raise RuntimeError(f"no epoch was told of: {command.end()}")


def phases(bench: Benchmark) -> None:
  """Programs compiled and seconds spent in each phase."""
  import jax

  from mnemonics_jax import PerClass, augment, data, methods, networks, phase

  count = 5 if bench.options.quick else 25
  digits = _pseudo_classes(data.load("digits"))
  stream = data.stream(digits, phases=count, base_classes=25)
  network = networks.resnet8(
    image_shape=stream.image_shape, mean=stream.mean, std=stream.std
  )
  schedule = phase.Schedule(epochs=2, milestones=(1,), batch_size=64)
  config = phase.Config(
    network,
    methods.LUCIR(),
    stream.shape,
    memory=PerClass(5),
    exemplars="mnemonics",
    adjust=True,
    finetune="head",
    base=schedule,
    train=schedule,
    balance=phase.Schedule(2, 0.01, (), batch_size=64),
    augment=augment.AUGMENTATIONS["crop"],
  )
  compiled: list[float] = []

  def listen(name, seconds, **_):
    if name == _COMPILED:
      compiled.append(seconds)

  listener: Any = listen
  jax.monitoring.register_event_duration_secs_listener(listener)
  state, rows = phase.begin_run(0, config), []
  for part in stream:
    compiled.clear()
    began = time.perf_counter()
    state, result = phase.run_phase(state, part, config)
    seconds = time.perf_counter() - began
    rows.append(
      {
        "phase": result.phase,
        "classes": result.classes_seen,
        "compiled": len(compiled),
        "compile_seconds": sum(compiled),
        "running_seconds": seconds - sum(compiled),
        "seconds": seconds,
      }
    )
  shown = {
    "phase": ("phase", "{}"),
    "classes": ("classes", "{}"),
    "compiled": ("programs compiled", "{}"),
    "compile_seconds": ("compiling", "{:.1f} s"),
    "running_seconds": ("running", "{:.1f} s"),
  }
  bench.add("phases", f"{count} phases", rows, shown)


def _pseudo_classes(digits: "Dataset") -> "Dataset":
  """Every fifth image of a class as a class of its own."""
  import numpy as np

  def split(labels):
    finer = np.zeros_like(labels)
    for label in np.unique(labels):
      members = np.flatnonzero(labels == label)
      finer[members] = _SPLIT * label + np.arange(len(members)) % _SPLIT
    return finer

  # In one step: labels and names have to agree.
  return dataclasses.replace(
    digits,
    train_labels=split(digits.train_labels),
    test_labels=split(digits.test_labels),
    class_names=tuple(
      f"{name}, part {i}" for name in digits.class_names for i in range(_SPLIT)
    ),
  )


_PARTS = {name: functools.partial(starts, part=name) for name in _COMMANDS}
BENCHMARK = Benchmark(
  "start", {**_PARTS, "phases": phases}, quick=["smoke", "phases"]
)

if __name__ == "__main__":
  BENCHMARK.run()
