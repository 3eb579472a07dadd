"""Twenty-five phases: what is compiled when, and how long phases take.

  python -m benchmarks.phases            # some minutes
  python -m benchmarks.phases --quick    # five phases

Digits have ten classes, too few for 25 phases. Here every fifth image of a digit
makes a class of its own: 50 classes of about 29 images, 25 of them in phase 0 and
one in each later phase. As classes they are nonsense, but the work of a phase is
real: LUCIR, learned and adjusted exemplars, a fine-tune. `start` measures starts.
"""

import dataclasses
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


if __name__ == "__main__":
  app.run(main)
