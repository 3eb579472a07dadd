"""Model level: SGD epochs over images that are on the device, or stream to it.

Blocks of images have one shape for the whole run and the number of steps is a
traced value, so each program compiles once, however many phases follow.
"""

import contextlib
import functools
import math
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Int
import numpy as np

from mnemonics_jax.parallel import mesh
from mnemonics_jax.parallel.prefetch import Pace
from mnemonics_jax.phase import sgd
from mnemonics_jax.phase.block import Block
from mnemonics_jax.phase.feed import Feed
from mnemonics_jax.phase.sgd import Task, TrainState
from mnemonics_jax.phase.stage import Stage
from mnemonics_jax.types import Batch, Variables


class _Epochs(NamedTuple):
  """Where a fit is.

  Attributes:
    state: of SGD.
    sums: metrics summed over the steps of the running epoch.
    epoch: the running epoch.
    step: steps of it that are done.
  """

  state: TrainState
  sums: dict[str, Array]
  epoch: int
  step: int


@functools.partial(jax.jit, donate_argnames=("state", "sums"))
def epoch_steps(
  state: TrainState,
  sums: dict[str, Array],
  block: Block,
  key: Array,
  *,
  task: Task,
  start: int | Int[Array, ""],
  stop: int | Int[Array, ""],
) -> tuple[TrainState, dict[str, Array]]:
  """Steps [start, stop) of one epoch: the program that `fit` spends its time in.

  >>> from mnemonics_jax import methods, networks, phase
  >>> from mnemonics_jax.nn.model import Model
  >>> network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  >>> method, new = methods.LwF(), jnp.array([True, True])
  >>> model = Model(network, method.head, classes=2)
  >>> task = Task(
  ...   methods.Classes(~new, new), new, None, method=method, model=model,
  ...   schedule=phase.Schedule(batch_size=4))
  >>> images = jnp.zeros((2, 4, 8, 8, 3), jnp.uint8)
  >>> block = phase.Block(images, jnp.zeros((2, 4), jnp.int32), jnp.int32(0))
  >>> variables = model.init(jax.random.key(0))
  >>> state = phase.init_training(task, variables)
  >>> state, sums = epoch_steps(
  ...   state, phase.zero_metrics(variables, task), block, jax.random.key(1),
  ...   task=task, start=0, stop=2)
  >>> bool(sums["loss"] > 0)  # Of two steps.
  True

  Args:
    state: of SGD; donated.
    sums: of what the steps before have measured, see `zero_metrics`; donated.
    block: their batches.
    key: of the epoch; each step's augmentation folds its number into it.
    task: what is trained, and for which loss.
    start: number of the first step.
    stop: number of the step after the last one.
  """

  def step(i, carry):
    state, sums = carry
    at = i - block.first
    images, labels = mesh.shard((block.images[at], block.labels[at]))
    images = task.augment(jax.random.fold_in(key, i), images)
    state, metrics = sgd.train_step(state, Batch(images, labels), task=task)
    return mesh.replicate((state, jax.tree.map(jnp.add, sums, metrics)))

  return lax.fori_loop(start, stop, step, (state, sums))


def fit(
  key: Array,
  variables: Variables,
  feed: Feed,
  task: Task,
  stage: Stage = Stage(),
) -> Variables:
  """Trains `variables` on the images of `feed` and returns them.

  >>> from mnemonics_jax import methods, networks, phase
  >>> from mnemonics_jax.nn.model import Model
  >>> network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  >>> method, new = methods.LwF(), jnp.array([True, True])
  >>> model = Model(network, method.head, classes=2)
  >>> task = Task(
  ...   methods.Classes(~new, new), new, None, method=method, model=model,
  ...   schedule=phase.Schedule(epochs=2, milestones=(1,), batch_size=4))
  >>> images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1])
  >>> pool, heard = phase.make_pool(images, labels, capacity=4), []
  >>> key, variables = jax.random.key(1), model.init(jax.random.key(0))
  >>> variables = fit(key, variables, pool, task, Stage(report=heard.append))
  >>> [round(event.metrics["lr"], 4) for event in heard]
  [0.1, 0.01]

  Args:
    key: source of the order of images and of the augmentation.
    variables: where training starts.
    feed: what it draws from: a `Pool`, or images that stream.
    task: what is trained, and for which loss.
    stage: hears of it about once a second, and knows where to begin.

  Raises:
    FloatingPointError: the loss or a parameter is not finite.
  """
  schedule = task.schedule
  steps = schedule.steps(feed.draws)
  no_sums = lambda: sgd.zero_metrics(variables, task)
  copy = jax.tree.map(jnp.array, variables)  # It is donated.
  # Epochs fold their number into the key; no epoch has this one.
  begin = sgd.init_training(
    task, copy, jax.random.fold_in(key, schedule.epochs)
  )
  now = stage.resume(_Epochs(begin, no_sums(), epoch=0, step=0))
  pace, blocks = Pace(), feed.blocks(key, schedule, now.epoch, now.step)
  with contextlib.closing(blocks):
    while now.epoch < schedule.epochs:
      epoch_key = jax.random.fold_in(key, now.epoch)
      rate = mesh.put_replicated(np.array(schedule.rate(now.epoch), np.float32))
      now = now._replace(state=now.state._replace(rate=rate))
      while now.step < steps:
        block, end = next(blocks)
        while now.step < end:
          stop = min(now.step + pace.steps, end)
          with pace.timing(stop - now.step):
            now = _advance(now, block, epoch_key, task, stop)
          if stop < steps:
            stage.tell(now.epoch, schedule.epochs, stop, steps)
            stage.offer(now)
        del block  # Not there any more while the next one comes.
      metrics = {name: float(total) / steps for name, total in now.sums.items()}
      metrics["lr"] = schedule.rate(now.epoch)
      stage.tell(now.epoch, schedule.epochs, steps, steps, metrics)
      now = _Epochs(now.state, no_sums(), now.epoch + 1, step=0)
      stage.offer(now)
  return now.state.variables


def _advance(now, block, key, task, stop):
  """Goes on to the step `stop`, and looks at what came of it."""
  state, sums = epoch_steps(
    now.state, now.sums, block, key, task=task, start=now.step, stop=stop
  )
  loss = float(sums["loss"])
  # A loss is measured before its step's update.
  if not math.isfinite(loss) or not sgd.finite(state.variables):
    rate = task.schedule.rate(now.epoch)
    raise FloatingPointError(
      f"Training diverged in epoch {now.epoch}, steps {now.step} to {stop}"
      f" (loss {loss / stop:g}, learning rate {rate:g})."
    )
  return _Epochs(state, sums, now.epoch, stop)
