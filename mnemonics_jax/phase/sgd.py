"""Model level: SGD epochs over a pool of images that lives on the device.

The pool is padded to one capacity for the whole run and the number of steps is
a traced value, so each program compiles once, however many phases follow.
"""

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

from mnemonics_jax.bilevel.batches import shuffle
from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.nn.augment import Augmentation, NoAugmentation
from mnemonics_jax.nn.heads import mask_logits
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.pixels import from_uint8
from mnemonics_jax.parallel import mesh
from mnemonics_jax.parallel.pace import Pace
from mnemonics_jax.phase.pool import Pool
from mnemonics_jax.phase.schedule import Schedule
from mnemonics_jax.phase.scope import deviation, hold_rows, merge, trainable
from mnemonics_jax.phase.stage import Stage
from mnemonics_jax.types import Batch, PyTree, Variables


@struct.dataclass
class Task:
  """What a model is trained for; stays the same from step to step.

  >>> from mnemonics_jax import methods, networks
  >>> network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  >>> method, new = methods.LwF(), jnp.array([True, True])
  >>> task = Task(
  ...   Classes(~new, new), rows=new, teacher=None, method=method,
  ...   model=Model(network, method.head, classes=2), schedule=Schedule(epochs=1))
  >>> len(jax.tree.leaves(task))  # Three masks; the rest is static.
  3

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

  >>> state = TrainState({"params": {}}, opt_state=(), rate=jnp.float32(0.5))
  >>> float(state._replace(rate=state.rate / 2).rate)
  0.25

  Attributes:
    variables: Θ.
    opt_state: of the optimiser.
    rate: learning rate of the next step.
  """

  variables: Variables
  opt_state: PyTree
  rate: Float[Array, ""]


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


def _optimizer(task: Task, key: Array | int) -> optax.GradientTransformation:
  schedule = task.schedule
  return optax.chain(
    task.method.gradients(schedule.batch_size, key),
    optax.add_decayed_weights(schedule.weight_decay),
    optax.trace(schedule.momentum),
  )


def forward(model: Model, method: Method, variables, images, train=False):
  """Outputs with the method's own logits, and the new batch statistics."""
  outputs, batch_stats = model.apply(variables, images, train)
  logits = method.logits(variables, outputs)
  return outputs._replace(logits=logits), batch_stats


def _loss(part, variables, batch, task):
  """The method's loss of a batch as a function of the trained `part`."""
  model, method, classes = task.model, task.method, task.classes
  images = from_uint8(batch.images)
  # A frozen backbone keeps its statistics too.
  student, batch_stats = forward(
    model, method, merge(variables, part), images, train=task.scope != "head"
  )
  teacher = None
  if task.teacher is not None:
    teacher = forward(model, method, task.teacher, images)[0]
  loss, parts = method.loss(student, teacher, batch.labels, classes)
  guess = jnp.argmax(mask_logits(student.logits, classes.seen), -1)
  correct = jnp.mean(guess == batch.labels)
  metrics = parts | {"loss": loss, "accuracy": correct}
  return loss, (batch_stats, metrics)


def init_training(
  task: Task, variables: Variables, key: Array | int = 0
) -> TrainState:
  """The state before the first step.

  >>> from mnemonics_jax import methods, networks
  >>> network, method = networks.resnet8(width=4), methods.LwF()
  >>> model, new = Model(network, method.head, classes=2), jnp.array([True, True])
  >>> task = Task(
  ...   Classes(~new, new), new, None, method=method, model=model,
  ...   schedule=Schedule(learning_rate=0.5))
  >>> float(init_training(task, model.init(jax.random.key(0))).rate)
  0.5

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

  >>> from mnemonics_jax import methods, networks
  >>> network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  >>> method, new = methods.LwF(), jnp.array([True, True])
  >>> model = Model(network, method.head, classes=2)
  >>> task = Task(
  ...   Classes(~new, new), new, None, method=method, model=model,
  ...   schedule=Schedule(batch_size=4))
  >>> variables = model.init(jax.random.key(0))
  >>> variables["params"]["head"]["weight"] = jnp.zeros((2, 16))
  >>> batch = Batch(jnp.zeros((4, 8, 8, 3)), jnp.array([0, 1, 0, 1]))
  >>> step = jax.jit(train_step)
  >>> state, metrics = step(init_training(task, variables), batch, task=task)
  >>> round(float(metrics["loss"]), 4)  # log 2: it has no opinion yet.
  0.6931

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


@functools.partial(jax.jit, donate_argnames=("state", "sums"))
def epoch_steps(
  state: TrainState,
  sums: dict[str, Array],
  pool: Pool,
  order: Int[Array, " capacity"],
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
    pool: what it trains on.
    order: rows of the pool as this epoch visits them, real ones first.
    key: of the epoch; each step's augmentation folds its number into it.
    task: what is trained, and for which loss.
    start: number of the first step.
    stop: number of the step after the last one.
  """
  size = task.schedule.batch_size

  def step(i, carry):
    state, sums = carry
    # The last batch wraps around: every batch is full and every image is seen.
    at = i * size + jnp.arange(size)
    picks = order[at % pool.count]
    images = mesh.take(pool.images, picks)
    labels = mesh.shard(pool.labels[picks])
    images = task.augment(jax.random.fold_in(key, i), images)
    state, metrics = train_step(state, Batch(images, labels), task=task)
    return mesh.replicate((state, jax.tree.map(jnp.add, sums, metrics)))

  return lax.fori_loop(start, stop, step, (state, sums))


@jax.jit
def finite(variables: Variables) -> Bool[Array, ""]:
  """Whether no number is infinite or NaN."""
  leaves = jax.tree.leaves(variables)
  return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


@jax.jit
def zero_metrics(
  variables: Variables, task: Task, pool: Pool
) -> dict[str, Array]:
  """Zeros in the shape of the metrics that `train_step` will return.

  Compiled, because tracing the loss again for every call would take longer.
  """
  batch = Batch(pool.images[:1], pool.labels[:1])
  part = trainable(variables, task.scope)
  _, (_, metrics) = jax.eval_shape(_loss, part, variables, batch, task)
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metrics)


@jax.jit
def _shuffle(key, labels, count):
  return shuffle(key, jnp.arange(len(labels)) < count)


def fit(
  key: Array,
  variables: Variables,
  pool: Pool,
  task: Task,
  stage: Stage = Stage(),
) -> Variables:
  """Trains `variables` on `pool` and returns them.

  >>> from mnemonics_jax import methods, networks
  >>> from mnemonics_jax.phase.pool import make_pool
  >>> network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  >>> method, new = methods.LwF(), jnp.array([True, True])
  >>> model = Model(network, method.head, classes=2)
  >>> task = Task(
  ...   Classes(~new, new), new, None, method=method, model=model,
  ...   schedule=Schedule(epochs=2, milestones=(1,), batch_size=4))
  >>> images, labels = np.zeros((4, 8, 8, 3), np.uint8), np.array([0, 1, 0, 1])
  >>> pool, heard = make_pool(images, labels, capacity=4), []
  >>> key, variables = jax.random.key(1), model.init(jax.random.key(0))
  >>> variables = fit(key, variables, pool, task, Stage(report=heard.append))
  >>> [round(event.metrics["lr"], 4) for event in heard]
  [0.1, 0.01]

  Args:
    key: source of the order of images and of the augmentation.
    variables: where training starts.
    pool: what it trains on.
    task: what is trained, and for which loss.
    stage: hears of it about once a second, and knows where to begin.

  Raises:
    FloatingPointError: the loss or a parameter is not finite.
  """
  schedule = task.schedule
  steps = schedule.steps(int(pool.count))
  no_sums = lambda: zero_metrics(variables, task, pool)
  copy = jax.tree.map(jnp.array, variables)  # It is donated.
  # Epochs fold their number into the key; no epoch has this one.
  begin = init_training(task, copy, jax.random.fold_in(key, schedule.epochs))
  now = stage.resume(_Epochs(begin, no_sums(), epoch=0, step=0))
  pace = Pace()
  while now.epoch < schedule.epochs:
    epoch_key = jax.random.fold_in(key, now.epoch)
    order = _shuffle(epoch_key, pool.labels, pool.count)
    rate = schedule.rate(now.epoch)
    state = now.state._replace(
      rate=mesh.put_replicated(np.array(rate, np.float32))
    )
    now = now._replace(state=state)
    while now.step < steps:
      stop = min(now.step + pace.steps, steps)
      with pace.timing(stop - now.step):
        state, sums = epoch_steps(
          now.state, now.sums, pool, order, epoch_key,
          task=task, start=now.step, stop=stop,
        )  # fmt: skip
        loss = float(sums["loss"])
        # A loss is measured before its step's update.
        if not math.isfinite(loss) or not finite(state.variables):
          raise FloatingPointError(
            f"Training diverged in epoch {now.epoch}, steps {now.step} to {stop}"
            f" (loss {loss / stop:g}, learning rate {rate:g})."
          )
      now = _Epochs(state, sums, now.epoch, stop)
      if stop < steps:
        stage.tell(now.epoch, schedule.epochs, stop, steps)
        stage.offer(now)
    metrics = {name: float(total) / steps for name, total in now.sums.items()}
    metrics["lr"] = rate
    stage.tell(now.epoch, schedule.epochs, steps, steps, metrics)
    now = _Epochs(now.state, no_sums(), now.epoch + 1, step=0)
    stage.offer(now)
  return now.state.variables
