"""Model level: one step of SGD, as a pure function of its state."""

from typing import NamedTuple

from flax import struct
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np
import optax

from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.nn.augment import Augmentation, NoAugmentation
from mnemonics_jax.nn.heads import mask_logits
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.pixels import from_uint8
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase.schedule import Schedule
from mnemonics_jax.phase.scope import deviation, hold_rows, merge, trainable
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


@jax.jit
def finite(variables: Variables) -> Bool[Array, ""]:
  """Whether no number is infinite or NaN."""
  leaves = jax.tree.leaves(variables)
  return jnp.stack([jnp.isfinite(leaf).all() for leaf in leaves]).all()


@jax.jit
def zero_metrics(variables: Variables, task: Task) -> dict[str, Array]:
  """Zeros in the shape of the metrics that `train_step` will return.

  Compiled, because tracing the loss again for every call would take longer.

  >>> from mnemonics_jax import methods, networks
  >>> network, method = networks.resnet8(width=4), methods.LwF()
  >>> model, new = Model(network, method.head, classes=2), jnp.array([True, True])
  >>> task = Task(
  ...   Classes(~new, new), new, None, method=method, model=model,
  ...   schedule=Schedule())
  >>> sums = zero_metrics(model.init(jax.random.key(0)), task)
  >>> {name: float(value) for name, value in sums.items()}
  {'accuracy': 0.0, 'cross_entropy': 0.0, 'loss': 0.0}

  Args:
    variables: where training starts.
    task: what is trained, and for which loss.
  """
  shape = 1, *task.model.network.image_shape
  batch = Batch(jnp.zeros(shape, jnp.uint8), jnp.zeros(1, jnp.int32))
  part = trainable(variables, task.scope)
  _, (_, metrics) = jax.eval_shape(_loss, part, variables, batch, task)
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), metrics)
