"""What was learned, as a value; and the same with another room for classes."""

from collections.abc import Hashable
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.types import PhaseResult, PhaseState

Name = Hashable


class Known(NamedTuple):
  """What has been learned: a value, to keep, save, or go on from.

  >>> from mnemonics_jax import Learner
  >>> learner, known = Learner.load("saved_learner")
  >>> known.names, known.phases  # Two classes at first, then one more.
  (('cat', 'dog', 'fox'), (2, 1))
  >>> images, names = known.exemplars
  >>> images.shape, names
  ((6, 8, 8, 3), ('cat', 'cat', 'dog', 'dog', 'fox', 'fox'))

  Attributes:
    state: Θ, the memory, and where the next phase begins.
    names: of the classes, in the order in which they were learned.
    phases: how many of them each call of `learn` brought.
    network: images to features; knows size and normalisation of the images.
    result: what the last phase measured; None if it had nothing to test on, and
      after loading.
  """

  state: PhaseState
  names: tuple[Name, ...]
  phases: tuple[int, ...]
  network: Any
  result: PhaseResult | None = None

  @property
  def exemplars(
    self,
  ) -> tuple[UInt8[np.ndarray, "n h w c"], tuple[Name, ...]]:
    """The images in the memory, and the name of each."""
    images, labels = memory_lib.flat(self.state.memory)
    return images, tuple(self.names[label] for label in labels)


class Scores(NamedTuple):
  """How well images are named.

  >>> from mnemonics_jax import Learner
  >>> learner, known = Learner.load("saved_learner")
  >>> images, names = known.exemplars
  >>> scores = learner.evaluate(known, images[2:], names[2:])
  >>> list(scores.by_class), scores.confusion.sum(1).tolist()  # No cat.
  (['dog', 'fox'], [0, 2, 2])

  Attributes:
    accuracy: share of the images that are named correctly.
    by_class: the same for each class that occurs.
    confusion: counts [true class, predicted class], in the order of `names`.
  """

  accuracy: float
  by_class: dict[Name, float]
  confusion: Int[np.ndarray, "seen seen"]


def room_for(classes: int) -> int:
  """Rows of the head of a learner that knows so many classes: 8, 16, 32, ...

  A phase that imitates the next one also counts the classes of that. They depend on
  nothing else: XLA chooses by their number how products and sums
  are computed.

  >>> room_for(3), room_for(8), room_for(33)
  (8, 8, 64)
  """
  return max(8, 1 << (classes - 1).bit_length())


def resized(state: PhaseState, begin: PhaseState) -> PhaseState:
  """The state with the room of another one, as if it had had it all along.

  Args:
    state: what is known; rows of no class may be left out.
    begin: of the same seed, before anything was known; a longer head begins with
      the rows of a shorter one.
  """
  memory, fresh = state.memory, begin.memory
  room = len(fresh.counts)
  if memory.codec == fresh.codec and len(memory.counts) == room:
    return state
  if memory.codec != fresh.codec:
    memory = memory_lib.store(fresh, *memory_lib.flat(memory))
  counts = np.bincount(memory.labels, minlength=room).astype(np.int32)
  memory = dataclasses.replace(memory, counts=counts)
  variables = jax.tree.map(_resized, state.variables, begin.variables)
  return state._replace(variables=variables, memory=memory)


def _resized(have, fresh):
  if np.shape(have) == np.shape(fresh):
    return have
  rows = jnp.concatenate([jnp.asarray(have), fresh[len(have) :]])
  return rows[: len(fresh)]
