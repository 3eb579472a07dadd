"""What has been learned, as a value, and the scores it gives to images."""

from collections.abc import Hashable
import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Float, Int, UInt8
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.errors import UserError
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase.evaluate import confusion, extract
from mnemonics_jax.readouts import READOUTS
from mnemonics_jax.types import PhaseResult, PhaseState

Name = Hashable


class Known(NamedTuple):
  """What has been learned: a value, to keep, save, or go on from.

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
  """How many images are named correctly.

  Attributes:
    accuracy: share of the images that are named correctly.
    by_class: the same for each class that occurs.
    confusion: counts [true class, predicted class], in the order of `names`.
  """

  accuracy: float
  by_class: dict[Name, float]
  confusion: Int[np.ndarray, "seen seen"]


def room_for(classes: int) -> int:
  """Rows of a learner's head for this many classes: 8, 16, 32, ...

  The rows depend on nothing else, because XLA chooses by their number how it
  computes products and sums. A phase that imitates the next one counts the
  classes of that one, too.

  >>> room_for(3), room_for(8), room_for(33)
  (8, 8, 64)
  """
  return max(8, 1 << (classes - 1).bit_length())


def resized(state: PhaseState, begin: PhaseState) -> PhaseState:
  """The state with as many rows as `begin`, as if it had always had them.

  Args:
    state: to resize; rows without a class may be cut off.
    begin: of the same seed, before anything was learned. A longer head begins
      with the rows of a shorter one.
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


def check_head(method: Method, known: Known) -> None:
  """Refuses a method whose head differs from the one that was learned."""
  key, head = jax.random.key(0), method.head
  fresh = jax.eval_shape(
    lambda: method.begin_run({"params": {"head": head.init(key, 1, 1)}})
  )
  learned = known.state.variables
  if (
    fresh["params"]["head"].keys() != learned["params"]["head"].keys()
    or not fresh.keys() <= learned.keys()
  ):
    raise UserError(
      "method",
      f"`method={method.name}` has another head than the method that learned"
      " this",
      "use the learner that it was learned with",
    )


def read(
  method: Method, known: Known, images: UInt8[np.ndarray, "n h w c"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n seen"]]:
  """Features and logits of images."""
  check_head(method, known)
  model = Model(known.network, method.head, len(known.state.memory.counts))
  variables = known.state.variables
  features, logits = extract(model, method, variables, images)
  return features, logits[:, : len(known.names)]


def class_scores(
  method: Method,
  known: Known,
  images: UInt8[np.ndarray, "n h w c"],
  readout: str,
) -> Float[np.ndarray, "n seen"]:
  """The scores of a read-out; `predict` names the class with the highest."""
  if readout not in READOUTS:
    raise UserError(
      "readout",
      f"`readout={readout}` is not known",
      f"choose one of {', '.join(READOUTS)}",
    )
  features, logits = read(method, known, images)

  def exemplars():
    kept, labels = memory_lib.flat(known.state.memory)
    return read(method, known, kept)[0], labels

  scores = READOUTS[readout]().scores
  return scores(features, logits, exemplars, len(known.names))


def grade(
  known: Known, labels: Int[np.ndarray, " n"], guesses: Int[np.ndarray, " n"]
) -> Scores:
  """Accuracies of guesses whose true labels are given."""
  table = confusion(labels, guesses, len(known.names))
  counts = table.sum(1)
  by_class = {
    name: float(table[i, i] / counts[i])
    for i, name in enumerate(known.names)
    if counts[i]
  }
  return Scores(float((labels == guesses).mean()), by_class, table)
