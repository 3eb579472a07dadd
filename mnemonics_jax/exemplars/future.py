"""What exemplars are learned for: the model as it is, or as the next phase makes it.

The next phase is simulated. Rotated images of the new classes stand for classes that
are not known yet: a model that learns them drifts as it will when real ones arrive.
"""

import dataclasses
from typing import Any, ClassVar, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt8
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.bilevel.data import take
from mnemonics_jax.data.images import read
from mnemonics_jax.data.stream import PhaseData, StreamShape
from mnemonics_jax.exemplars.level import Level, exemplar_level
from mnemonics_jax.memory import Memory
from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase.config import Config
from mnemonics_jax.phase.context import Phase
from mnemonics_jax.phase.sgd import WITH_TEACHER, own_logits
from mnemonics_jax.phase.train import begin_model, train_model
from mnemonics_jax.types import PhaseState, Variables

# Epochs that a drifted copy trains on the simulated phase.
DRIFT_EPOCHS = 2
# Exemplars that are learned in a step of an imitated phase, and as many others.
IMITATED_BATCH = 64
# Where variables have what the loss of an imitated phase needs beside them.
IMITATED = "imitated"
# Validation images of a meta step for models whose features change with it.
_MOVING_BATCH = 512


class Begin(NamedTuple):
  """Where the base level starts.

  Attributes:
    level: its model and recipe.
    variables: its first parameters.
    active: classes that compete in the softmax.
    more: other keywords of `bilevel.prepare`.
  """

  level: Level
  variables: Variables
  active: Array
  more: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Now:
  """Exemplars are learned for the model as it is; others learn for another.

  Attributes:
    frozen: whether its features never change, so that those of the validation
      data are computed once.
  """

  frozen: ClassVar[bool] = True

  def begin(
    self,
    phase: Phase,
    variables: Variables,
    images: UInt8[np.ndarray, "n h w c"],
    labels: Int[np.ndarray, " n"],
  ) -> Begin:
    """Where the base level starts.

    Args:
      phase: which learns exemplars.
      variables: Θ_i.
      images: the exemplars, as they are chosen.
      labels: their classes.
    """
    del images, labels
    level = exemplar_level(phase.config)
    return Begin(level, level.start(variables), phase.classes.seen, {})

  def passes(self, config: Config, exemplars: float) -> tuple[Level, float]:
    """The level, and images in a step of it, for an estimate of the work."""
    return exemplar_level(config), exemplars

  def work(self, config: Config, phase: int) -> float:
    """Training steps before the meta loop, for the same estimate."""
    del config, phase
    return 0.0


@dataclasses.dataclass(frozen=True)
class Drifted(Now):
  """The model, and copies that began to learn a simulated next phase.

  Attributes:
    copies: how many beside the model itself.
  """

  frozen = False
  copies: int = 1

  def begin(self, phase, variables, images, labels):
    begin = super().begin(phase, variables, images, labels)
    found = self.drifted(phase, variables, images, labels)
    starts = jax.vmap(begin.level.start)(found)
    level = _moving(begin.level, phase.config)
    return begin._replace(level=level, more={"starts": starts})

  def drifted(self, phase, variables, images, labels) -> Variables:
    """Θ_i and its copies, stacked; the arguments are those of `begin`."""
    follow = _follows(phase, variables, images, labels)
    if not follow.data.new_classes:  # The head is full: nothing will follow.
      return jax.tree.map(lambda x: jnp.asarray(x)[None], variables)
    short = dataclasses.replace(
      phase.config.train, epochs=_drift_epochs(phase.config)
    )
    config = dataclasses.replace(phase.config, train=short, transfer="none")
    found = [variables]
    for copy in range(self.copies):
      key = jax.random.fold_in(phase.keys("exemplars"), copy)
      state = follow.state._replace(key=key)
      found.append(train_model(Phase(state, follow.data, config)))
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)

  def work(self, config, phase):
    assert isinstance(config.shape, StreamShape)
    split, sizes = config.shape.classes_per_phase, config.shape.class_sizes
    old, seen = sum(split[:phase]), sum(split[: phase + 1])
    if seen == sum(split):
      return 0.0
    coming = min(split[phase], split[phase + 1])
    kept = memory_lib.kept(config.memory, seen, max(sizes))
    steps = config.train.steps(sum(sizes[old : old + coming]) + kept)
    return WITH_TEACHER * self.copies * _drift_epochs(config) * steps


def _drift_epochs(config):
  return min(config.train.epochs, DRIFT_EPOCHS)


def _moving(level, config):
  """The level, with batches whose features a step can compute again."""
  size = config.bilevel.batch_size or _MOVING_BATCH
  return level._replace(
    config=dataclasses.replace(level.config, batch_size=size)
  )


@dataclasses.dataclass(frozen=True)
class Imitated(Now):
  """The model that the training of a simulated next phase makes of it.

  The base level is that training: it moves the whole network by the method's own
  loss, on batches of rotated images and old exemplars.
  """

  frozen = False

  def begin(self, phase, variables, images, labels):
    begin = super().begin(phase, variables, images, labels)
    follow = _follows(phase, variables, images, labels)
    if follow.data.new_classes:  # Otherwise the head is full.
      steps, classes = begin.level.config.inner_steps, follow.classes
      beside = {
        "teacher": variables,
        "old": classes.old,
        "new": classes.new,
        "rows": phase.config.method.trainable_rows(classes),
      }
      begin = Begin(
        imitated_level(phase.config),
        begin_model(follow) | {IMITATED: beside},
        classes.seen,
        {"inner_data": _inner_data(phase, follow, steps)},
      )
    return begin._replace(level=_moving(begin.level, phase.config))

  def passes(self, config, exemplars):
    return imitated_level(config), 2 * IMITATED_BATCH


def _inner_data(phase, follow, steps):
  """Rotated images and old exemplars, for each step of the base level."""
  old, old_labels = memory_lib.flat(phase.state.memory)
  rng = phase.keys.numpy("exemplars")
  each = IMITATED_BATCH // 2 if len(old) else IMITATED_BATCH
  rows = rng.integers(0, len(follow.data.labels), (steps, each))
  parts = [(read(follow.data.images, rows.ravel()), follow.data.labels[rows])]
  if len(old):
    rows = rng.integers(0, len(old), (steps, each))
    parts.append((old[rows.ravel()], old_labels[rows]))
  shape = phase.config.shape.image_shape
  images = [x.reshape(steps, -1, *shape) for x, _ in parts]
  labels = np.concatenate([y for _, y in parts], 1)
  return bilevel.from_uint8(np.concatenate(images, 1)), jnp.asarray(labels)


def imitated_level(config: Config) -> Level:
  """The exemplar level whose base level is the training of the next phase.

  It uses the statistics of its batches: frozen ones bear no rate at which a phase
  trains.
  """
  level = exemplar_level(config)
  recipe = dataclasses.replace(
    level.config,
    scope="all",
    inner_lr=config.train.learning_rate,
    inner_batch_size=IMITATED_BATCH,
    batch_norm="batch",
    batch_size=None,
    features_fn=None,
    head_fn=None,
    inner_loss=_MethodLoss(config.model, config.method),
  )
  return level._replace(config=recipe.resolve())


@dataclasses.dataclass(frozen=True)
class _MethodLoss:
  """A method's own loss as `inner_loss` of `bilevel`.

  Attributes:
    model: network and head.
    method: whose loss it is.
  """

  model: Model
  method: Method

  def __call__(self, variables, batch):
    known = variables[IMITATED]
    # The loss is a mean without a mask: padding becomes copies of real rows.
    mask = batch.mask
    rows, _ = take(jnp.argsort(~mask), mask, len(batch.labels), 0)
    images, labels = batch.images[rows], batch.labels[rows]
    params = _held(variables["params"], known["rows"])
    variables = variables | {"params": params}
    student, _ = self.model.apply(variables, images, train=True)
    student = own_logits(self.method, variables, student)
    teacher, _ = self.model.apply(known["teacher"], images)
    teacher = own_logits(self.method, known["teacher"], teacher)
    classes = Classes(known["old"], known["new"])
    return self.method.loss(student, teacher, labels, classes)[0]


def _held(params, rows):
  """Parameters without a gradient in the head rows that the phase would hold."""

  def hold(leaf):
    moves = rows.reshape(-1, *[1] * (leaf.ndim - 1)) if leaf.ndim else True
    return jnp.where(moves, leaf, lax.stop_gradient(leaf))

  return params | {"head": jax.tree.map(hold, params["head"])}


def next_phase(
  phase: Phase,
  variables: Variables,
  memory: Memory,
  classes: int,
  *,
  turns: int = 1,
  last: bool = False,
) -> Phase:
  """The phase that would follow, if rotated images were the next classes.

  Args:
    phase: whose images are rotated.
    variables: Θ_i.
    memory: as the phase leaves it.
    classes: how many arrive; no more than `phase` has brought, and no more than the
      head has rows for.
    turns: quarter turns by which they differ from those that `phase` has brought.
    last: whether its last classes are rotated, and not its first.
  """
  new = phase.data.labels - phase.classes_old
  room = phase.config.model.classes - phase.classes_seen
  classes = min(classes, room, phase.data.new_classes)
  new -= phase.data.new_classes - classes if last else 0
  rows = np.flatnonzero((new >= 0) & (new < classes))
  images = _rotated(read(phase.data.images, rows), turns)
  data = PhaseData(
    images,
    (new[rows] + phase.classes_seen).astype(np.int32),
    classes,
    phase.data.test_images,
    phase.data.test_labels,
  )
  state = PhaseState(
    variables,
    memory,
    phase.state.key,
    phase.state.phase + 1,
    phase.classes_seen,
  )
  return dataclasses.replace(phase, state=state, data=data)


def _rotated(images, turns):
  """By quarter turns; what is not square is turned upside down."""
  _, height, width, _ = images.shape
  turns = turns if height == width else 2
  return np.ascontiguousarray(np.rot90(images, turns, axes=(1, 2)))


def _follows(phase, variables, images, labels):
  """The simulated phase after one that ends with these exemplars."""
  memory = memory_lib.store(phase.state.memory, images, labels)
  memory = memory_lib.discard(
    None,
    memory,
    phase.most(memory.counts),
    bytes_allowance=phase.bytes_allowance,
  )
  split, number = phase.config.shape.classes_per_phase, phase.state.phase
  classes = split[min(number + 1, len(split) - 1)]
  return next_phase(phase, variables, memory, classes)
