"""What a run is going to do, in plain words, and how long it will take."""

from collections.abc import Callable
import functools
import math
import time

import jax
import jax.numpy as jnp

from experiments.paper import follows_paper
from experiments.settings import Settings
from mnemonics_jax import bilevel, devices, protocol
from mnemonics_jax import exemplars as exemplars_lib
from mnemonics_jax.phase import Config, begin_run, exemplar_level
from mnemonics_jax.report.progress import format_duration
from mnemonics_jax.stream import ClassStream
from mnemonics_jax.types import StepReport

_READOUT = {
  "head": "the argmax of the classifier head (`head`)",
  "nme": "the nearest mean of exemplars (`nme`)",
}


def describe(
  settings: Settings, config: Config, stream: ClassStream, workdir
) -> str:
  """One paragraph for the person who started the run."""
  split = stream.classes_per_phase
  allowance = min(config.policy.allowance(sum(split)), config.slots)
  images = allowance * sum(split)
  size = images * math.prod(config.model.network.image_shape)
  schedule = f"the schedule of --preset={settings.preset}"
  if follows_paper(settings):
    schedule += ", the paper's"
  elif settings.preset != "paper":
    schedule += ", a reduced one"
  joint = (
    " It is the upper bound: every phase trains on the raw data of all classes"
    " seen so far, which an incremental learner never may."
    if config.method.joint
    else ""
  )
  seeds = ", ".join(map(str, settings.seeds))
  times = f"once per seed ({seeds})" if len(settings.seeds) > 1 else "once"
  return (
    f"Learning the {sum(split)} classes of {settings.dataset} with"
    f" {settings.method} and {settings.exemplars} exemplars in"
    f" {len(split)} phases of {_runs(split)} classes, {times}, with"
    f" {settings.net} on {schedule}.{joint} The memory ({config.policy}) ends"
    f" with {allowance} exemplars per class: {images:,} images, {_bytes(size)}."
    f" The reported read-out is {_READOUT[config.method.readout]}. Results go"
    f" to {workdir}."
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


def phase_work(config: Config, stream: ClassStream) -> list[float]:
  """Expected work of each phase, in training steps without a teacher."""
  sizes, work, seen = stream.class_sizes, [], 0
  kept = lambda classes: protocol.kept(config.policy, classes, max(sizes))
  for phase, arriving in enumerate(stream.classes_per_phase):
    old, seen = seen, seen + arriving
    schedule = config.train if phase else config.base
    if config.method.joint:
      pool, cost = sum(sizes[:seen]), 1.0
    else:
      # The teacher's forward pass adds a third to a step.
      pool, cost = sum(sizes[old:seen]) + kept(old), 4 / 3 if phase else 1.0
    batch = schedule.batch_size
    steps = cost * schedule.epochs * math.ceil(pool / batch)
    chunks = lambda classes: math.ceil(
      classes / (config.exemplar_chunk or classes)
    )
    if config.exemplars == "mnemonics":
      exemplars = kept(seen) / seen * arriving
      steps += _meta_work(config, exemplars, pool, chunks(arriving)) / batch
    if config.adjust and old:
      steps += _meta_work(config, kept(old), kept(old), chunks(old)) / batch
    if config.finetune != "none":
      cost = 1.0 if config.finetune == "all" else 1 / 3
      steps += cost * config.balance.epochs * math.ceil(kept(seen) / batch)
    work.append(steps)
  return work


def _meta_work(config, exemplars, data, chunks):
  """Images that the exemplar level passes forward and backward."""
  exemplars, data = exemplars / chunks, data / chunks
  level = exemplar_level(config).config
  meta_steps = level.steps_per_epoch or math.ceil(data / level.batch_size)
  passes = exemplars
  if not level.on_features:
    # An inner step costs its gradient and the gradient through it.
    passes = 4 * exemplars * level.inner_steps + level.batch_size
  return chunks * level.epochs * meta_steps * passes


# A network stores no more than this for a pixel's gradient through it.
_MOST_PER_PIXEL = 1000


def memory_note(
  config: Config, stream: ClassStream, limit: int | None = None
) -> str | None:
  """What to do if learning exemplars needs more memory than a device has.

  Args:
    config: of the phases.
    stream: their data.
    limit: bytes of memory; None asks the device.
  """
  split, chunk = stream.classes_per_phase, config.exemplar_chunk
  at_once = [0]
  if config.exemplars == "mnemonics":
    at_once.append(min(max(split), chunk or max(split)))
  if config.adjust:  # One half of the old exemplars moves at a time.
    old = sum(split[:-1])
    at_once.append(math.ceil(min(old, chunk or old) / 2))
  limit = limit or bilevel.device_bytes()
  images = config.slots * max(at_once) / devices.count()
  pixels = math.prod(config.model.network.image_shape)
  if images * 4 * pixels * _MOST_PER_PIXEL < limit:
    return None
  fixed, per_class = level_bytes(config, devices.count())
  needed = fixed + max(at_once) * per_class
  if needed < limit:
    return None
  fitting = int((limit - fixed) / per_class)
  advice = (
    f"--exemplar_chunk={fitting} should fit"
    if fitting > 0
    else "even one class is too much: choose a smaller --memory or --net"
  )
  return (
    f"learning exemplars of {max(at_once)} classes at once takes about"
    f" {needed / 2**30:.1f} GiB, and a device has {limit / 2**30:.1f} GiB;"
    f" {advice}."
  )


@functools.cache
def level_bytes(config: Config, share: int = 1) -> tuple[float, float]:
  """About what learning exemplars occupies on a device, from shapes alone.

  Args:
    config: of the phases.
    share: devices that share batches, exemplars and images.

  Returns:
    Bytes whatever the number of classes: the validation batch and the weights;
    and bytes for each class: the unroll over its exemplars, and its images.
  """
  level = exemplar_level(config)
  image = config.model.network.image_shape
  rows = lambda count: bilevel.Exemplars(
    jax.ShapeDtypeStruct((count, *image), jnp.float32),
    jax.ShapeDtypeStruct((count,), jnp.int32),
  )
  variables = jax.eval_shape(
    lambda: exemplars_lib.start(begin_run(0, config).variables, level)
  )
  one, two = (
    bilevel.step_bytes(rows(n * config.slots), variables, **level._asdict())
    for n in (1, 2)
  )
  fixed, per_class, data = one - (two - one), two - one, 0
  if not level.config.on_features:
    batch = rows(level.config.batch_size).images
    residuals = jax.eval_shape(
      lambda v, x: jax.tree.leaves(
        jax.vjp(lambda v: level.apply_fn(v, x), v)[1]
      ),
      variables,
      batch,
    )
    fixed += sum(x.size * x.dtype.itemsize for x in residuals) / share
    data = config.class_size * math.prod(image)
  return fixed, (per_class + data) / share


class Estimate:
  """A `Report` that says once, after the first steps, how long a run will take.

  Args:
    work: expected work of the whole run, in training steps of phase 0.
    say: receives the sentence.
    settle: seconds to measure for, once the programs have been compiled.
  """

  def __init__(
    self, work: float, say: Callable[[str], None], settle: float = 1.0
  ):
    self._work = work
    self._say = say
    self._settle = settle
    self._first = 0.0, 0
    self._heard = 0
    self._done = False

  def __call__(self, report: StepReport) -> None:
    # A base phase too short to measure is over before one could read on.
    self._done = self._done or report.phase > 0 or report.stage != "train"
    if self._done:
      return
    now, steps = time.monotonic(), report.epoch * report.steps + report.step
    self._heard += 1
    if self._heard <= 3:
      # Calls that still compile end with the first reports; time counts after.
      self._first = now, steps
    elif now - self._first[0] >= self._settle:
      pace = (now - self._first[0]) / (steps - self._first[1])
      self._done = True
      self._say(
        f"Estimated duration: about {format_duration(pace * self._work)}"
        f" after compilation ({pace:.3g} s per training step, measured)."
      )
