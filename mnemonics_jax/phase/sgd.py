"""Model level: SGD over blocks of images, as pure functions of a state.

Blocks of images have one shape for the whole run and the number of steps is a
traced value, so each program compiles once, however many phases follow.
"""

import contextlib
import functools
import math
from typing import NamedTuple

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np
import optax

from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.nn.augment import Augmentation, NoAugmentation
from mnemonics_jax.nn.heads import mask_logits
from mnemonics_jax.nn.model import Model, Outputs
from mnemonics_jax.nn.pixels import from_uint8
from mnemonics_jax.parallel import mesh
from mnemonics_jax.parallel.prefetch import Pace
from mnemonics_jax.phase.config import Schedule
from mnemonics_jax.phase.context import Stage
from mnemonics_jax.phase.feed import Block, Feed
from mnemonics_jax.types import Batch, PyTree, Variables

# A teacher's forward pass adds a third to the work of a step.
WITH_TEACHER = 4 / 3


@struct.dataclass
class Task:
  """What a model is trained for; stays the same from step to step.

  Attributes:
    classes: old and new classes of the phase.
    rows: head rows that may move.
    teacher: the frozen old model, None for plain training.
    model: network and head.
    method: whose loss is minimised.
    schedule: batch size, momentum, weight decay, learning rates.
    scope: what is trained, see `scope.trainable`.
    augment: applied to every batch.
  """

  classes: Classes
  rows: Bool[Array, " classes"]
  teacher: Variables | None
  model: Model = struct.field(pytree_node=False)
  method: Method = struct.field(pytree_node=False)
  schedule: Schedule = struct.field(pytree_node=False)
  scope: str = struct.field(pytree_node=False, default="all")
  augment: Augmentation = struct.field(
    pytree_node=False, default=NoAugmentation()
  )


class TrainState(NamedTuple):
  """Where SGD is.

  Attributes:
    variables: Θ.
    opt_state: of the optimiser.
    rate: learning rate of the next step.
  """

  variables: Variables
  opt_state: PyTree
  rate: Float[Array, ""]


def _optimizer(task: Task, key: Array | int) -> optax.GradientTransformation:
  schedule = task.schedule
  return optax.chain(
    task.method.gradients(schedule.batch_size, key),
    optax.add_decayed_weights(schedule.weight_decay),
    optax.trace(schedule.momentum),
  )


def own_logits(
  method: Method, variables: Variables, outputs: Outputs
) -> Outputs:
  """Outputs of a model with the method's logits in place of the head's."""
  return outputs._replace(logits=method.logits(variables, outputs))


def _loss(part, variables, batch, task):
  """The method's loss of a batch as a function of the trained `part`."""
  model, method, classes = task.model, task.method, task.classes
  images = from_uint8(batch.images)
  variables = merge(variables, part)
  # A frozen backbone keeps its statistics too.
  student, batch_stats = model.apply(variables, images, task.scope != "head")
  student, teacher = own_logits(method, variables, student), None
  if task.teacher is not None:
    teacher, _ = model.apply(task.teacher, images)
    teacher = own_logits(method, task.teacher, teacher)
  loss, parts = method.loss(student, teacher, batch.labels, classes)
  guess = jnp.argmax(mask_logits(student.logits, classes.seen), -1)
  correct = jnp.mean(guess == batch.labels)
  metrics = parts | {"loss": loss, "accuracy": correct}
  return loss, (batch_stats, metrics)


def init_training(
  task: Task, variables: Variables, key: Array | int = 0
) -> TrainState:
  """The state before the first step.

  Args:
    task: what is trained, and for which loss.
    variables: where training starts.
    key: of the method's noise on gradients, if it adds any.
  """
  part = trainable(variables, task.scope)
  rate = mesh.put_replicated(np.array(task.schedule.rate(0), np.float32))
  return TrainState(variables, _optimizer(task, key).init(part), rate)


def train_step(
  state: TrainState, batch: Batch, *, task: Task
) -> tuple[TrainState, dict[str, Array]]:
  """One step of SGD with momentum; pure, and jittable as it is.

  Args:
    state: of `init_training`, or of the step before.
    batch: images, uint8 or float in [0, 1], already augmented; and labels.
    task: what is trained, and for which loss.

  Returns:
    The next state, and the loss with its parts, measured before the step.
  """
  part = trainable(state.variables, task.scope)
  grads, (batch_stats, metrics) = jax.grad(_loss, has_aux=True)(
    part, state.variables, batch, task
  )
  # Its randomness is in its state.
  updates, opt_state = _optimizer(task, key=0).update(
    grads, state.opt_state, deviation(part)
  )
  updates = hold_rows(updates, task.rows)
  updates = jax.tree.map(lambda u: -state.rate * u, updates)
  variables = merge(state.variables, optax.apply_updates(part, updates))
  variables = variables | {"batch_stats": batch_stats}
  return TrainState(variables, opt_state, state.rate), metrics


@jax.jit
def finite(variables: Variables) -> Bool[Array, ""]:
  """Whether no number is infinite or NaN."""
  leaves = jax.tree.leaves(variables)
  return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


@jax.jit
def zero_metrics(variables: Variables, task: Task) -> dict[str, Array]:
  """Zeros in the shape of the metrics that `train_step` will return.

  Compiled, because tracing the loss again for every call would take longer.

  Args:
    variables: where training starts.
    task: what is trained, and for which loss.
  """
  shape = 1, *task.model.network.image_shape
  batch = Batch(jnp.zeros(shape, jnp.uint8), jnp.zeros(1, jnp.int32))
  part = trainable(variables, task.scope)
  _, (_, metrics) = jax.eval_shape(_loss, part, variables, batch, task)
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metrics)


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
    state, metrics = train_step(state, Batch(images, labels), task=task)
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
  no_sums = lambda: zero_metrics(variables, task)
  copy = jax.tree.map(jnp.array, variables)  # It is donated.
  # Epochs fold their number into the key; no epoch has this one.
  begin = init_training(task, copy, jax.random.fold_in(key, schedule.epochs))
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
            state, sums = epoch_steps(
              now.state, now.sums, block, epoch_key,
              task=task, start=now.step, stop=stop,
            )  # fmt: skip
            _check_finite(state, sums, task, now, stop)
            now = _Epochs(state, sums, now.epoch, stop)
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


def _check_finite(state, sums, task, now, stop):
  """Stops a training whose loss or parameters are no longer finite."""
  loss = float(sums["loss"])
  # A loss is measured before its step's update.
  if not math.isfinite(loss) or not finite(state.variables):
    rate = task.schedule.rate(now.epoch)
    raise FloatingPointError(
      f"Training diverged in epoch {now.epoch}, steps {now.step} to {stop}"
      f" (loss {loss / stop:g}, learning rate {rate:g})."
    )


def trainable(variables: Variables, scope: str) -> PyTree:
  """The part of the variables that SGD moves.

  `all`: every parameter. `transfer`: T, normalisation and head over frozen
  kernels. `head`: the head alone.
  """
  params = variables["params"]
  if scope == "head":
    return {"params": {"head": params["head"]}}
  if scope == "all":
    return {"params": params}
  backbone = _without_kernels(params["backbone"])
  return {
    "params": params | {"backbone": backbone},
    "transfer": variables["transfer"],
  }


def _without_kernels(node):
  return {
    name: _without_kernels(child) if isinstance(child, dict) else child
    for name, child in node.items()
    if name != "kernel"
  }


def merge(variables: PyTree, part: PyTree) -> PyTree:
  """Variables with the leaves of `part` in place of their own."""
  if not isinstance(part, dict):
    return part
  return variables | {
    name: merge(variables[name], child) for name, child in part.items()
  }


def deviation(part: PyTree) -> PyTree:
  """What weight decay shrinks: parameters, and transfer minus its identity."""
  if "transfer" not in part:
    return part
  identity = lambda path, x: x - 1 if path[-1].key == "scale" else x
  transfer = jax.tree_util.tree_map_with_path(identity, part["transfer"])
  return part | {"transfer": transfer}


def hold_rows(updates: PyTree, rows: Array) -> PyTree:
  """Updates that leave every head row outside `rows` exactly where it is."""
  head = updates["params"]["head"]
  held = {
    name: jnp.where(rows.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)
    for name, leaf in head.items()
    if leaf.ndim
  }
  return merge(updates, {"params": {"head": held}})
