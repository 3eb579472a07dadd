"""What phases cost, known before they run: steps, and memory of a device."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp

from mnemonics_jax import bilevel, exemplars
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.exemplars.learn import adjusting_work
from mnemonics_jax.exemplars.level import exemplar_level
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase.config import Config
from mnemonics_jax.phase.run import begin_run
from mnemonics_jax.phase.sgd import WITH_TEACHER


def phase_work(config: Config) -> list[float]:
  """Expected work of each phase, in training steps without a teacher."""
  assert isinstance(config.shape, StreamShape)
  sizes, work, seen = config.shape.class_sizes, [], 0
  kept = lambda classes: memory_lib.kept(config.memory, classes, max(sizes))
  strategy = exemplars.strategy(config)
  split = config.shape.classes_per_phase
  for phase, arriving in enumerate(split):
    old, seen = seen, seen + arriving
    schedule = config.train if phase else config.base
    if config.method.joint:
      pool, cost = sum(sizes[:seen]), 1.0
    else:
      pool = sum(sizes[old:seen]) + kept(old)
      cost = WITH_TEACHER if phase else 1.0
    batch = schedule.batch_size
    steps = cost * schedule.epochs * schedule.steps(pool)
    steps += strategy.work(config, phase)
    if config.adjust and old and not config.method.joint:
      steps += adjusting_work(config, kept(old), old) / batch
    if config.finetune != "none" and not config.method.joint:
      cost = 1.0 if config.finetune == "all" else 1 / 3
      steps += cost * config.balance.epochs * config.balance.steps(kept(seen))
    work.append(steps)
  return work


# A network stores no more than this for a pixel's gradient through it.
_MOST_PER_PIXEL = 1000


def memory_note(config: Config, limit: int | None = None) -> str | None:
  """What to do if learning exemplars needs more memory than a device has.

  Args:
    config: of the phases.
    limit: bytes of memory; None asks the device.
  """
  split, chunk = config.shape.classes_per_phase, config.exemplar_chunk
  at_once = [0]
  if config.learned:
    at_once.append(min(max(split), chunk or max(split)))
  if config.adjust:  # One part of the old exemplars moves at a time.
    old = sum(split[:-1])
    at_once.append(math.ceil(min(old, chunk or old) / config.adjust_parts))
  limit = limit or bilevel.device_bytes()
  images = config.sizes.class_exemplars * max(at_once) / mesh.device_count()
  pixels = math.prod(config.shape.image_shape)
  if images * 4 * pixels * _MOST_PER_PIXEL < limit:
    return None
  fixed, per_class = level_bytes(config, mesh.device_count())
  needed = fixed + max(at_once) * per_class
  if needed < limit:
    return None
  fitting = int((limit - fixed) / per_class)
  advice = (
    f"`exemplar_chunk={fitting}` should fit"
    if fitting > 0
    else "even one class is too much: choose a smaller `memory` or `network`"
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
  image = config.shape.image_shape
  shape: Any = jax.ShapeDtypeStruct
  rows = lambda count: bilevel.Exemplars(
    shape((count, *image), jnp.float32), shape((count,), jnp.int32)
  )
  variables = jax.eval_shape(
    lambda: level.start(begin_run(0, config).variables)
  )
  one, two = (
    bilevel.step_bytes(
      rows(n * config.sizes.class_exemplars), variables, **level._asdict()
    )
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
    data = config.sizes.class_images * math.prod(image)
  return fixed, (per_class + data) / share
