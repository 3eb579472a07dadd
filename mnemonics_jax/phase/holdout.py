"""Exemplars kept apart from training for good, to calibrate with (BiC).

A share of each class's exemplars is never trained on, in any phase. They are
the first ones in its memory, and come from images that were held out when the
class arrived; a memory that shrinks keeps their share.
"""

from jaxtyping import Bool, Int
import numpy as np


def share(count: int, fraction: float) -> int:
  """How many of a class's exemplars are held out: one at least, never all.

  >>> [share(count, 0.1) for count in (1, 2, 20, 26)]
  [0, 1, 2, 3]
  >>> share(20, fraction=0.0)
  0
  """
  if not fraction:
    return 0
  return max(min(max(1, round(fraction * count)), count - 1), 0)


def of_memory(
  labels: Int[np.ndarray, " n"], fraction: float, allowance: int | None = None
) -> Bool[np.ndarray, " n"]:
  """Which exemplars are held out, in the order in which the memory has them.

  >>> of_memory(np.array([0, 0, 0, 1, 1]), fraction=0.1).tolist()
  [True, False, False, True, False]

  Args:
    labels: of all exemplars.
    fraction: the share that is held out.
    allowance: exemplars that a class may keep, if it has more of them: no more
      are held out than then.
  """
  held = np.zeros(len(labels), bool)
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    held[rows[: share(min(len(rows), allowance or len(rows)), fraction)]] = True
  return held


def of_new_images(
  rng: np.random.Generator,
  labels: Int[np.ndarray, " n"],
  fraction: float,
  allowance: int,
) -> Bool[np.ndarray, " n"]:
  """Which new images are held out: those that will be held-out exemplars.

  >>> labels = np.array([0] * 50 + [1] * 50)
  >>> held = of_new_images(np.random.default_rng(0), labels, 0.1, allowance=20)
  >>> np.bincount(labels[held]).tolist()
  [2, 2]

  Args:
    rng: chooses them.
    labels: of all new images.
    fraction: the share of a class's exemplars that is held out.
    allowance: exemplars that it may keep.
  """
  held = np.zeros(len(labels), bool)
  if not fraction:
    return held
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    count = share(min(len(rows), allowance), fraction)
    held[rng.permutation(rows)[:count]] = True
  return held


def first(
  labels: Int[np.ndarray, " n"], held: Bool[np.ndarray, " n"], count: float
) -> Bool[np.ndarray, " n"]:
  """The first of the held-out images of each class, one at least.

  >>> held = np.array([True, False, True, True, True])
  >>> first(np.array([0, 0, 0, 0, 1]), held, count=1.8).tolist()
  [True, False, True, False, True]

  Args:
    labels: of all images.
    held: which of them are held out.
    count: how many of a class to take, rounded.
  """
  taken = np.zeros(len(labels), bool)
  for label in np.unique(labels):
    rows = np.flatnonzero(held & (labels == label))
    taken[rows[: max(round(count), 1)]] = True
  return taken
