"""Where the seconds of a start go: importing, tracing, compiling, the first step.

  python -m benchmarks.start            # some minutes; CIFAR-100 if it is there
  python -m benchmarks.start --parts=cifar
  python -m benchmarks.start --quick    # digits alone, at smoke size

Each command starts three times in a home of its own: with no cache of compiled
programs, with the cache of that start, and once more to continue a run that was
stopped after its first epoch. Tracing and compiling are counted as JAX reports
them, spans that overlap once; reading a program from the cache counts as compiling.
CPU seconds are those of the whole start, compilers of kernels included.
"""

import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import app, flags

from benchmarks import measure

_QUICK = flags.DEFINE_bool("quick", False, "Digits alone, at smoke size.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)

_PARTS = flags.DEFINE_list(
  "parts", ["smoke", "digits", "cifar"], "Tables to make."
)

_ROOT = pathlib.Path(__file__).parents[1]
_SPANS = {
  "/jax/core/compile/jaxpr_trace_duration": "trace",
  "/jax/core/compile/jaxpr_to_mlir_module_duration": "lower",
  "/jax/core/compile/backend_compile_duration": "compile",
}
_COMMANDS = {
  "smoke": ["digits", "--preset=smoke"],
  "digits": ["digits"],
  "cifar": [
    *("cifar", "--preset=short", "--images_per_class=50", "--base_epochs=2"),
    "--exemplars=mnemonics",
  ],
}


def main(_):
  results = measure.Results("start", _OUTPUT.value, _QUICK.value)
  parts = ["smoke"] if _QUICK.value else _PARTS.value
  if "MNEMONICS_DATA_DIR" not in os.environ:
    parts = [part for part in parts if part != "cifar"]
  for command in map(_COMMANDS.__getitem__, parts):
    results.add(
      "_".join(command).replace("--", ""),
      f"python -m experiments.{' '.join(command)}",
      list(_starts(command)),
      lambda row: {
        "start": row["name"],
        **{
          name: f"{row[name]:.1f} s"
          for name in ("import", "trace", "lower", "compile")
        },
        "programs": row["programs"],
        "first epoch after": f"{row['first_epoch']:.1f} s",
        "whole": f"{row['seconds']:.1f} s",
        "CPU": f"{row['cpu']:.1f} s",
      },
    )


def _starts(command):
  with tempfile.TemporaryDirectory() as folder:
    for name, run in [
      ("empty cache", "first"),
      ("full cache", "second"),
      ("continued", "stopped"),
    ]:
      line = [*command, f"--workdir={folder}/{run}"]
      environment = {"XDG_CACHE_HOME": f"{folder}/cache"}
      if run == "stopped":
        _start([*line, "--checkpoint_every=1"], environment, stop=True)
      yield {"name": name} | _start(line, environment)


def _start(line, environment, stop=False) -> dict[str, Any]:
  """Seconds of one run in a process of its own, stopped early if asked."""
  began = time.perf_counter()
  process = subprocess.Popen(
    [sys.executable, "-m", "benchmarks.start", *line],
    cwd=_ROOT,
    env=os.environ | environment | {_CHILD: "1", "PYTHONPATH": str(_ROOT)},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  assert process.stdout is not None
  first, text = None, []
  for row in process.stdout:
    text.append(row)
    if first is None and " · epoch " in row:
      first = time.perf_counter() - began
      if stop:
        process.terminate()
  process.wait()
  if stop:
    return {}
  if process.returncode or first is None:
    raise RuntimeError("".join(text))
  parts = json.loads(text[-1])
  return parts | {
    "first_epoch": first,
    "seconds": time.perf_counter() - began,
  }


_CHILD = "MNEMONICS_BENCHMARK_START"


def _run(line):
  """The command itself, which listens to what JAX tells of its compiler."""
  began = time.time()
  import jax

  spans = []
  listen: Any = lambda event, start, end, **_: spans.append((event, start, end))
  jax.monitoring.register_event_time_span_listener(listen)
  sys.argv = list(line)
  imported = time.time() - began
  try:
    runpy.run_module(f"experiments.{line[0]}", run_name="__main__")
  except SystemExit as end:
    if end.code:
      raise
  times = {"import": imported, "trace": 0.0, "lower": 0.0, "compile": 0.0}
  until = 0.0
  for event, start, end in sorted(spans, key=lambda span: span[1:]):
    if event in _SPANS:
      times[_SPANS[event]] += max(0.0, end - max(start, until))
      until = max(until, end)
  programs = sum(_SPANS.get(event) == "compile" for event, *_ in spans)
  print(json.dumps(times | {"programs": programs, "cpu": sum(os.times()[:4])}))


if __name__ == "__main__":
  if _CHILD in os.environ:
    _run(sys.argv[1:])
  else:
    app.run(main)
