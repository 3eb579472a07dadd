"""What a run is going to do, in plain words."""

import math
from pathlib import Path

from experiments.paper import departures
from experiments.settings import Settings
from mnemonics_jax import registry
from mnemonics_jax.phase import Config


def describe(settings: Settings, config: Config, workdir: Path) -> str:
  """One paragraph for the person who started the run."""
  split = config.shape.classes_per_phase
  allowance = min(
    config.memory.allowance(sum(split)), config.sizes.class_exemplars
  )
  images = allowance * sum(split)
  size = images * math.prod(config.shape.image_shape)
  schedule = f"the schedule of --preset={settings.preset}"
  differing = departures(settings)
  if not differing:
    schedule += ", the paper's"
  elif settings.preset != "paper":
    schedule += ", a reduced one"
  else:
    schedule += f", which is not the paper's: {', '.join(differing)}"
  joint = (
    " It is the upper bound: every phase trains on the raw data of all classes"
    " seen so far, which an incremental learner never may."
    if config.method.joint
    else ""
  )
  readout = config.method.readout
  seeds = ", ".join(map(str, settings.seeds))
  times = f"once per seed ({seeds})" if len(settings.seeds) > 1 else "once"
  return (
    f"Learning the {sum(split)} classes of {settings.dataset} with"
    f" {settings.method} and {settings.exemplars} exemplars in"
    f" {len(split)} phases of {_runs(split)} classes, {times}, with"
    f" {settings.net} on {schedule}.{joint} The memory ({config.memory}) ends"
    f" with {allowance} exemplars per class: {images:,} images, {_bytes(size)}."
    f" The reported read-out is {registry.READOUTS[readout]} (`{readout}`)."
    f" Results go to {workdir}."
  )


def _runs(split):
  """5, 1, 1, 1 → '5 + 3×1'."""
  parts, start = [], 0
  for i in range(1, len(split) + 1):
    if i == len(split) or split[i] != split[start]:
      count = i - start
      parts.append(
        f"{count}×{split[start]}" if count > 1 else f"{split[start]}"
      )
      start = i
  return " + ".join(parts)


def _bytes(size):
  for unit in ("bytes", "kB", "MB"):
    if size < 1000 or unit == "MB":
      return f"{size:,.0f} {unit}" if size >= 10 else f"{size:.1f} {unit}"
    size /= 1000
