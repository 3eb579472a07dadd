"""What was learned, as a value; and the same with room for more classes."""

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


def room_for(needed: int, room: int) -> int:
  """`room`, doubled until it holds all that is needed.

  >>> room_for(9, 4), room_for(3, 4)
  (16, 4)
  """
  while room < needed:
    room *= 2
  return room


def grown(state: PhaseState, begin: PhaseState) -> PhaseState:
  """The state with the room of another one, as if it had had it all along.

  What is learned from there on is the same up to rounding: XLA chooses by their
  shapes how products and sums over padded rows are computed.

  Args:
    state: what is known.
    begin: of the same seed, before anything was known; a longer head begins with
      the rows of a shorter one.
  """
  memory, fresh = state.memory, begin.memory
  more = len(fresh.counts) - len(memory.counts)
  if memory.codec == fresh.codec and not more:
    return state
  if memory.codec != fresh.codec:
    memory = memory_lib.store(fresh, *memory_lib.flat(memory))
  counts = np.pad(memory.counts, (0, len(fresh.counts) - len(memory.counts)))
  memory = dataclasses.replace(memory, counts=counts)
  variables = jax.tree.map(_longer, state.variables, begin.variables)
  return state._replace(variables=variables, memory=memory)


def _longer(have, fresh):
  if np.shape(have) == np.shape(fresh):
    return have
  return jnp.concatenate([jnp.asarray(have), fresh[len(have) :]])
