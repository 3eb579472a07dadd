"""An imitation of the next phase, made of what this one has seen.

Rotated images of the new classes stand for classes that are not known yet: a model
that learns them drifts as it will when real ones arrive. Exemplars are learned for
such models (`drifted`), or through the very training (`imitated`).
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.images import read
from mnemonics_jax.data.stream import PhaseData
from mnemonics_jax.memory import Memory
from mnemonics_jax.phase.context import Phase
from mnemonics_jax.phase.level import IMITATED, IMITATED_BATCH
from mnemonics_jax.phase.train import begin_model, train_model
from mnemonics_jax.types import PhaseState, Variables

DRIFT_EPOCHS = 2


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
  """The imitated phase after one that ends with these exemplars."""
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


def drifted(
  phase: Phase,
  variables: Variables,
  images: np.ndarray,
  labels: np.ndarray,
  copies: int,
) -> Variables:
  """Θ_i and copies that began to learn an imitated phase, stacked.

  Args:
    phase: which one it is.
    variables: Θ_i.
    images: exemplars of its classes, as they are chosen.
    labels: their classes.
    copies: how many beside Θ_i.
  """
  follow = _follows(phase, variables, images, labels)
  if not follow.data.new_classes:  # The head is full: nothing will follow.
    return jax.tree.map(lambda x: jnp.asarray(x)[None], variables)
  short = dataclasses.replace(
    phase.config.train, epochs=min(phase.config.train.epochs, DRIFT_EPOCHS)
  )
  config = dataclasses.replace(phase.config, train=short, transfer="none")
  found = [variables]
  for copy in range(copies):
    key = jax.random.fold_in(phase.keys("exemplars"), copy)
    state = follow.state._replace(key=key)
    found.append(train_model(Phase(state, follow.data, config)))
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *found)


class Imitated(NamedTuple):
  """The training of the next phase as a base level.

  Attributes:
    variables: where it begins, with what its loss has to know beside them.
    active: classes that compete.
    inner_data: rotated images and old exemplars, for each of its steps.
  """

  variables: Variables
  active: Array
  inner_data: tuple[Array, Array]


def imitated(
  phase: Phase,
  variables: Variables,
  images: np.ndarray,
  labels: np.ndarray,
  steps: int,
) -> Imitated | None:
  """The base level that imitates the next phase; None if the head is full.

  Args:
    phase: which one it is.
    variables: Θ_i.
    images: exemplars of its classes, as they are chosen.
    labels: their classes.
    steps: of the base level.
  """
  follow = _follows(phase, variables, images, labels)
  if not follow.data.new_classes:
    return None
  old, old_labels = memory_lib.flat(phase.state.memory)
  rng = phase.keys.numpy("exemplars")
  each = IMITATED_BATCH // 2 if len(old) else IMITATED_BATCH
  rows = rng.integers(0, len(follow.data.labels), (steps, each))
  parts = [(read(follow.data.images, rows.ravel()), follow.data.labels[rows])]
  if len(old):
    rows = rng.integers(0, len(old), (steps, each))
    parts.append((old[rows.ravel()], old_labels[rows]))
  shape = phase.config.shape.image_shape
  inner = (
    np.concatenate([x.reshape(steps, -1, *shape) for x, _ in parts], 1),
    np.concatenate([y for _, y in parts], 1),
  )
  classes = follow.classes
  beside = {
    "teacher": variables,
    "old": classes.old,
    "new": classes.new,
    "rows": phase.config.method.trainable_rows(classes),
  }
  return Imitated(
    begin_model(follow) | {IMITATED: beside},
    classes.seen,
    (bilevel.from_uint8(inner[0]), jnp.asarray(inner[1])),
  )
