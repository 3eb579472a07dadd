"""Twenty-five phases: what is compiled when, and how long phases take.

  python -m benchmarks.phases            # some minutes
  python -m benchmarks.phases --quick    # five phases

Digits have ten classes, too few for 25 phases. Here every fifth image of a digit
makes a class of its own: 50 classes of about 29 images, 25 of them in phase 0 and
one in each later phase. As classes they are nonsense, but the work of a phase is
real: LUCIR, learned and adjusted exemplars, a fine-tune.

The second table is how long a start takes until its first step has ended, and
altogether, with an empty cache of compiled programs and with a full one.
"""

import dataclasses
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

from absl import app, flags
import jax
import numpy as np

from benchmarks import measure
from mnemonics_jax import PerClass, augment, data, methods, networks, phase
from mnemonics_jax.data import Dataset
from mnemonics_jax.phase import Schedule

_QUICK = flags.DEFINE_bool("quick", False, "Five phases.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_SPLIT = 5
_ROOT = pathlib.Path(__file__).parents[1]
_COMPILED = "/jax/core/compile/backend_compile_duration"


def main(_):
  phases = 5 if _QUICK.value else 25
  results = measure.Results("phases", _OUTPUT.value, _QUICK.value)
  results.add(
    "phases",
    f"{phases} phases",
    run_phases(phases),
    lambda row: {
      "phase": row["phase"],
      "classes": row["classes"],
      "programs compiled": row["compiled"],
      "compiling": f"{row['compile_seconds']:.1f} s",
      "running": f"{row['seconds'] - row['compile_seconds']:.1f} s",
    },
  )
  results.add(
    "start_up",
    "Starts",
    start_up(),
    lambda row: {
      "start": row["name"],
      "first step": f"{row['first_step']:.1f} s",
      "whole run": f"{row['seconds']:.1f} s",
    },
  )


def run_phases(phases: int) -> list[dict[str, Any]]:
  """Programs compiled and seconds spent in each phase."""
  stream = data.stream(
    pseudo_classes(data.load("digits")), phases=phases, base_classes=25
  )
  network = networks.resnet8(
    image_shape=stream.image_shape, mean=stream.mean, std=stream.std
  )
  schedule = Schedule(epochs=2, milestones=(1,), batch_size=64)
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
    balance=Schedule(2, 0.01, (), batch_size=64),
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
    rows.append(
      {
        "phase": result.phase,
        "classes": result.classes_seen,
        "compiled": len(compiled),
        "compile_seconds": sum(compiled),
        "seconds": time.perf_counter() - began,
      }
    )
  return rows


def pseudo_classes(digits: Dataset) -> Dataset:
  """Every fifth image of a class as a class of its own."""

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


def start_up() -> list[dict[str, Any]]:
  """A short run of the command, with an empty cache and again.

  The first epoch is one step: 60 images in batches of 64.
  """
  rows = []
  with tempfile.TemporaryDirectory() as folder:
    for name in ("empty cache", "full cache"):
      began, first = time.perf_counter(), None
      process = subprocess.Popen(
        [
          *(sys.executable, "-m", "experiments.digits", "--preset=smoke"),
          *("--phases=1", f"--workdir={folder}/run", "--fresh"),
          "--images_per_class=12",
        ],
        cwd=_ROOT,
        # The command itself keeps what it compiles, below this directory.
        env=os.environ
        | {"XDG_CACHE_HOME": f"{folder}/cache", "PYTHONPATH": str(_ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
      )
      assert process.stdout is not None
      text = []
      for line in process.stdout:
        text.append(line)
        if first is None and "epoch 1/" in line:
          first = time.perf_counter() - began
      if process.wait() or first is None:
        raise RuntimeError("".join(text))
      seconds = time.perf_counter() - began
      rows.append({"name": name, "first_step": first, "seconds": seconds})
  return rows


if __name__ == "__main__":
  app.run(main)
