"""What a run prints before it begins: what it learns, how, and where to."""

import itertools
import math
from pathlib import Path

from experiments.paper import departures
from mnemonics_jax import registry
from mnemonics_jax.data import ClassStream
from mnemonics_jax.data.sources import title_of
from mnemonics_jax.phase import Config
from mnemonics_jax.settings import Settings

_MOST_CLASSES = 8  # to name


def describe(
  settings: Settings, config: Config, stream: ClassStream, workdir: Path
) -> str:
  """A paragraph for the person who started the run, and its classes.

  Args:
    settings: what the flags say.
    config: what becomes of it.
    stream: the data.
    workdir: where results go.
  """
  split = config.shape.classes_per_phase
  schedule = f"the schedule of --preset={settings.preset}"
  differing = [*departures(settings), *stream.departures]
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
  begin = ""
  if settings.base_model is not None:
    begin = f" Phase 0 takes the model in {settings.base_model}."
  views = ""
  if stream.varies and "augment" not in settings.idle:
    views = (
      " Phases train on random parts of the photographs;"
      f" --augment={settings.augment} acts on exemplars only."
    )
  readout = config.method.readout
  seeds = ", ".join(map(str, settings.seeds))
  phases = f"{len(split)} phases" if len(split) > 1 else "one phase"
  times = f"once per seed ({seeds})" if len(settings.seeds) > 1 else "once"
  return (
    f"Learning the {sum(split)} classes of {title_of(stream.name)} with"
    f" {settings.method} and {settings.exemplars} exemplars in"
    f" {phases} of {_runs(split)} classes, {times}, with"
    f" {settings.net} on {schedule}.{joint}{begin}{views} {_memory(config)}"
    f" The reported read-out is {registry.READOUTS[readout].help} (`{readout}`)."
    f" Results go to {workdir}.\n"
    f"Classes, in the order they are learned: {_classes(stream)}.\n"
    f"Computing on {_devices()}."
  )


def _memory(config):
  """The memory budget, and what a class gets of it in the end."""
  classes = config.shape.classes
  each = min(config.memory.allowance(classes), config.sizes.class_exemplars)
  name = f"The memory ({config.memory}"
  name += ")" if config.codec.exact else f", {config.codec})"
  shared = len(config.codec.shared(config.shape.image_shape))
  share = config.memory.bytes_allowance(classes, shared)
  if share is not None:
    once = f", and {_bytes(shared)} that all share" if shared else ""
    return (
      f"{name} ends with {_bytes(share)} per class, {_bytes(share * classes)} in"
      f" all{once}: at most {each} exemplars of a class."
    )
  size = _bytes(each * classes * math.prod(config.shape.image_shape))
  size = f", {size}." if config.codec.exact else "."
  return (
    f"{name} ends with {each} exemplars per class: {each * classes:,} images"
    f"{size}"
  )


def _classes(stream):
  """cat (500 images), dog (480)..."""
  pairs = zip(stream.class_names, stream.class_sizes, strict=True)
  shown = list(itertools.islice(pairs, _MOST_CLASSES))
  (name, size), *rest = shown
  words = [f"{name} ({size} training images)"]
  words += [f"{name} ({size})" for name, size in rest]
  more = len(stream.class_names) - len(shown)
  return ", ".join(words) + (f" and {more} more" if more else "")


def _devices():
  """1 CPU device, 8 TPU v3 devices."""
  import jax

  devices = jax.devices()
  kind = devices[0].device_kind
  kind = "CPU" if kind == "cpu" else kind
  return f"{len(devices)} {kind} device{'s' if len(devices) > 1 else ''}"


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
