"""Model level: SGD epochs over a pool of images that lives on the device.

The pool is padded to one capacity for the whole run and the number of steps is
a traced value, so each program compiles once, however many phases follow.
"""

import dataclasses
import functools
import math
import time
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, UInt8
import numpy as np
import optax

from mnemonics_jax import devices
from mnemonics_jax.augment import Augmentation, NoAugmentation, to_float
from mnemonics_jax.heads import mask_logits
from mnemonics_jax.journal import Journal
from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.model import Model
from mnemonics_jax.pace import Pace
from mnemonics_jax.types import PyTree, Report, StepReport, Variables


@dataclasses.dataclass(frozen=True)
class Schedule:
  """How long and how fast to train.

  Attributes:
    epochs: passes over the pool.
    learning_rate: of the first epochs.
    milestones: epochs after which the learning rate is multiplied by `decay`.
    decay: see `milestones`.
    batch_size: images per step.
    momentum: of SGD.
    weight_decay: L2 pull to zero (to the identity for transfer weights).
  """

  epochs: int = 160
  learning_rate: float = 0.1
  milestones: tuple[int, ...] = (80, 120)
  decay: float = 0.1
  batch_size: int = 128
  momentum: float = 0.9
  weight_decay: float = 5e-4

  def rate(self, epoch: int) -> float:
    passed = sum(epoch >= milestone for milestone in self.milestones)
    return self.learning_rate * self.decay**passed


class Pool(NamedTuple):
  """Training images on the device, padded to a capacity.

  Attributes:
    images: uint8 pixels; devices may ask for more rows than the capacity.
    labels: class of each image.
    count: how many of the rows are real.
  """

  images: UInt8[Array, "rows h w c"]
  labels: Int[Array, " capacity"]
  count: Int[Array, ""]


def make_pool(images: np.ndarray, labels: np.ndarray, capacity: int) -> Pool:
  """Moves images to the device once, padded to `capacity`.

  Several devices have a share of the images each.
  """
  if not 0 < len(images) <= capacity:
    raise ValueError(f"{len(images)} images for a pool of {capacity}")
  return Pool(
    devices.spread(images, devices.divisible(capacity)),
    devices.put(np.pad(np.int32(labels), (0, capacity - len(labels)))),
    jnp.int32(len(images)),
  )


class _Progress(NamedTuple):
  """Where training is.

  Attributes:
    variables: Θ.
    opt_state: of the optimiser.
    sums: metrics summed over the steps of the running epoch.
    epoch: the running epoch.
    step: steps of it that are done.
  """

  variables: Variables
  opt_state: PyTree
  sums: dict[str, Array]
  epoch: int
  step: int


@functools.partial(jax.jit, static_argnames="capacity")
def _shuffle(key, count, capacity):
  """A permutation of the real rows, followed by the padding."""
  draws = jax.random.uniform(key, (capacity,))
  return jnp.argsort(jnp.where(jnp.arange(capacity) < count, draws, jnp.inf))


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


def _deviation(part: PyTree) -> PyTree:
  """What weight decay shrinks: parameters, and transfer minus its identity."""
  if "transfer" not in part:
    return part
  identity = lambda path, x: x - 1 if path[-1].key == "scale" else x
  transfer = jax.tree_util.tree_map_with_path(identity, part["transfer"])
  return part | {"transfer": transfer}


def _hold_rows(updates: PyTree, rows: Array) -> PyTree:
  """Updates that leave every head row outside `rows` exactly where it is."""
  head = updates["params"]["head"]
  held = {
    name: jnp.where(rows.reshape(-1, *[1] * (leaf.ndim - 1)), leaf, 0)
    for name, leaf in head.items()
    if leaf.ndim
  }
  return merge(updates, {"params": {"head": held}})


def _optimizer(schedule: Schedule) -> optax.GradientTransformation:
  return optax.chain(
    optax.add_decayed_weights(schedule.weight_decay),
    optax.trace(schedule.momentum),
  )


def forward(model: Model, method: Method, variables, images, train=False):
  """Outputs with the method's own logits, and the new batch statistics."""
  outputs, batch_stats = model.apply(variables, images, train)
  logits = method.logits(variables, outputs)
  return outputs._replace(logits=logits), batch_stats


def _loss(
  part, variables, teacher, images, labels, classes, *, model, method, scope
):
  """The method's loss of a uint8 batch as a function of the trained `part`."""
  images = to_float(images)
  # A frozen backbone keeps its statistics too.
  train = scope != "head"
  student, batch_stats = forward(
    model, method, merge(variables, part), images, train
  )
  old = None if teacher is None else forward(model, method, teacher, images)[0]
  loss, parts = method.loss(student, old, labels, classes)
  guess = jnp.argmax(mask_logits(student.logits, classes.seen), -1)
  metrics = parts | {"loss": loss, "accuracy": jnp.mean(guess == labels)}
  return loss, (batch_stats, metrics)


@functools.partial(
  jax.jit,
  static_argnames=("model", "method", "schedule", "augment", "scope"),
  donate_argnames=("variables", "opt_state", "sums"),
)
def _steps(
  variables, opt_state, sums, teacher, pool, order, start, stop, rate, key,
  classes, rows, *, model, method, schedule, augment, scope,
):  # fmt: skip
  """SGD steps [start, stop) of one epoch."""
  tx = _optimizer(schedule)
  gradient = jax.grad(
    functools.partial(_loss, model=model, method=method, scope=scope),
    has_aux=True,
  )

  def step(i, carry):
    variables, opt_state, sums = carry
    # The last batch wraps around: every batch is full and every image is seen.
    at = i * schedule.batch_size + jnp.arange(schedule.batch_size)
    picks = order[at % pool.count]
    images = devices.draw(pool.images, picks)
    labels = devices.split(pool.labels[picks])
    images = augment(jax.random.fold_in(key, i), images)
    part = trainable(variables, scope)
    grads, (batch_stats, metrics) = gradient(
      part, variables, teacher, images, labels, classes
    )
    updates, opt_state = tx.update(grads, opt_state, _deviation(part))
    updates = jax.tree.map(lambda u: -rate * u, _hold_rows(updates, rows))
    variables = merge(variables, optax.apply_updates(part, updates))
    variables = variables | {"batch_stats": batch_stats}
    sums = jax.tree.map(jnp.add, sums, metrics)
    return devices.gather((variables, opt_state, sums))

  return lax.fori_loop(start, stop, step, (variables, opt_state, sums))


@jax.jit
def finite(variables: Variables) -> Bool[Array, ""]:
  """Whether no number is infinite or NaN."""
  leaves = jax.tree.leaves(variables)
  return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


@functools.partial(jax.jit, static_argnames=("model", "method", "scope"))
def _zero_metrics(variables, teacher, pool, classes, **names):
  """Zeros in the shape of the metrics that `_loss` will return.

  Compiled, because tracing the loss again for every call would take longer.
  """
  part = trainable(variables, names["scope"])
  loss = lambda images, labels, *rest: _loss(
    part, variables, teacher, images[:1], labels[:1], *rest, **names
  )
  _, (_, metrics) = jax.eval_shape(loss, pool.images, pool.labels, classes)
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metrics)


def fit(
  key: Array,
  variables: Variables,
  pool: Pool,
  *,
  model: Model,
  method: Method,
  schedule: Schedule,
  classes: Classes,
  rows: Array,
  teacher: Variables | None = None,
  augment: Augmentation = NoAugmentation(),
  scope: str = "all",
  report: Report,
  phase: int = 0,
  stage: str = "train",
  journal: Journal | None = None,
) -> Variables:
  """Trains `variables` on `pool` and returns them; calls `report` as it goes.

  Args:
    key: source of the order of images and of the augmentation.
    variables: where training starts.
    pool: what it trains on.
    model: network and head.
    method: whose loss is minimised.
    schedule: epochs, learning rates, batch size.
    classes: old and new classes of the phase.
    rows: head rows that may move.
    teacher: the frozen old model, None for plain training.
    augment: applied to every batch.
    scope: what is trained, see `trainable`.
    report: receives a `StepReport` about once a second.
    phase: number that reports carry.
    stage: name that reports carry.
    journal: where to look for a beginning, and whom to tell about progress.
  """
  journal = journal or Journal()
  static = dict(
    model=model,
    method=method,
    schedule=schedule,
    scope=scope,
    augment=augment,
  )
  steps = math.ceil(int(pool.count) / schedule.batch_size)
  zeros = _zero_metrics(
    variables, teacher, pool, classes, model=model, method=method, scope=scope
  )
  now = _Progress(
    jax.tree.map(jnp.array, variables),  # The copy is donated.
    _optimizer(schedule).init(trainable(variables, scope)),
    sums=jax.tree.map(jnp.zeros_like, zeros),
    epoch=0,
    step=0,
  )
  now = journal.resume(stage, like=now) or now
  pace = Pace()
  while now.epoch < schedule.epochs:
    epoch_key = jax.random.fold_in(key, now.epoch)
    order = _shuffle(epoch_key, pool.count, len(pool.labels))
    rate = schedule.rate(now.epoch)
    where = phase, stage, now.epoch, schedule.epochs
    while now.step < steps:
      began = time.perf_counter()
      stop = min(now.step + pace.steps, steps)
      epoch, start = now.epoch, now.step
      variables, opt_state, sums = _steps(
        now.variables, now.opt_state, now.sums, teacher, pool, order, start,
        stop, rate, epoch_key, classes, rows, **static,
      )  # fmt: skip
      now = _Progress(variables, opt_state, sums, epoch, stop)
      loss = float(now.sums["loss"])
      # A loss is measured before its step's update.
      if not math.isfinite(loss) or not finite(now.variables):
        raise FloatingPointError(
          f"Training diverged in epoch {epoch}, steps {start} to {stop} (loss"
          f" {loss / stop:g}, learning rate {rate:g})."
        )
      pace.measure(stop - start, time.perf_counter() - began)
      if stop < steps:
        report(StepReport(*where, stop, steps))
        journal.offer(stage, now)
    metrics = {name: float(total) / steps for name, total in now.sums.items()}
    report(StepReport(*where, steps, steps, metrics | {"lr": rate}))
    now = now._replace(
      sums=jax.tree.map(jnp.zeros_like, zeros), epoch=now.epoch + 1, step=0
    )
    journal.offer(stage, now)
  return now.variables
