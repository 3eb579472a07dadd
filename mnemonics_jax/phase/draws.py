"""Which images an epoch draws and how often, and which are never trained on."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int
import numpy as np

from mnemonics_jax.bilevel.data import shuffle


@jax.jit
def epoch_order(
  key: Array,
  labels: Int[Array, " capacity"] | Int[np.ndarray, " capacity"],
  count: Int[Array, ""] | int,
  quota: Int[Array, " classes"] | Int[np.ndarray, " classes"] | None = None,
) -> Int[Array, " capacity"]:
  """Rows as an epoch draws them, those of all classes mixed.

  Args:
    key: of the epoch.
    labels: class of each row, padded.
    count: how many of the rows are real; they come first. As many are drawn.
    quota: how many draws each class has, `count` together; None draws every image
      once. Images of a class are drawn equally often, but for one draw: which of
      them have one more differs from epoch to epoch.
  """
  real = jnp.arange(len(labels)) < count
  if quota is None:
    return shuffle(key, real)
  mix_key, class_key = jax.random.split(key)
  classes = jnp.where(real, labels, len(quota))
  # Class after class, each in an order of its own.
  luck = jax.random.uniform(class_key, labels.shape)
  rows = jnp.lexsort((luck, classes))
  sizes = jnp.zeros(len(quota) + 1, jnp.int32).at[classes].add(1)
  quota = jnp.append(quota, 0)
  each, more = jnp.divmod(quota, jnp.maximum(sizes, 1))
  mine = classes[rows]
  place = jnp.arange(len(rows)) - (jnp.cumsum(sizes) - sizes)[mine]
  times = each[mine] + (place < more[mine])
  drawn = jnp.repeat(rows, times, total_repeat_length=len(rows))
  return drawn[shuffle(mix_key, real)]


def quotas(
  rehearsal: str, labels: Int[np.ndarray, " n"], old: int, classes: int
) -> Int[np.ndarray, " classes"] | None:
  """How many draws of an epoch each class has; None for every image once.

  Args:
    rehearsal: `once`; `balanced`, a class of exemplars as often as a new class;
      or how many times as often an exemplar is drawn as a new image.
    labels: classes of all that is trained on.
    old: how many classes have exemplars only.
    classes: of the model.
  """
  if rehearsal == "once" or not old:
    return None
  counts = np.bincount(labels, minlength=classes).astype(np.float64)
  is_old, there = np.arange(classes) < old, counts > 0
  weights = counts.copy()
  if rehearsal == "balanced":
    weights[is_old & there] = counts[~is_old & there].mean()
  else:
    weights[is_old] *= int(rehearsal)
  return _shares(weights, len(labels))


def equal_quotas(
  labels: Int[np.ndarray, " n"], classes: int
) -> Int[np.ndarray, " classes"] | None:
  """As many draws of an epoch for each class; None if each has as many images.

  Args:
    labels: classes of all that is trained on.
    classes: of the model.
  """
  counts = np.bincount(labels, minlength=classes)
  there = counts > 0
  if len(set(counts[there].tolist())) < 2:
    return None
  return _shares(there.astype(np.float64), len(labels))


def _shares(weights, total):
  """Whole numbers in the proportion of weights, `total` together."""
  exact = weights * total / weights.sum()
  whole = np.floor(exact).astype(np.int32)
  # What is left goes to those that were cut most.
  cut = np.argsort(whole - exact, kind="stable")[: total - whole.sum()]
  whole[cut] += 1
  return whole


def held_share(count: int, fraction: float) -> int:
  """How many of a class's exemplars are held out: one at least, never all."""
  if not fraction:
    return 0
  return max(min(max(1, round(fraction * count)), count - 1), 0)


def held_in_memory(
  labels: Int[np.ndarray, " n"], fraction: float, allowance: int | None = None
) -> Bool[np.ndarray, " n"]:
  """Which exemplars are held out, in the order in which the memory has them.

  Args:
    labels: of all exemplars.
    fraction: the share that is held out.
    allowance: exemplars that a class may keep, if it has more of them: no more
      are held out than then.
  """
  held = np.zeros(len(labels), bool)
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    count = min(len(rows), allowance or len(rows))
    held[rows[: held_share(count, fraction)]] = True
  return held


def held_new_images(
  rng: np.random.Generator,
  labels: Int[np.ndarray, " n"],
  fraction: float,
  allowance: int,
) -> Bool[np.ndarray, " n"]:
  """Which new images are held out: those that will be held-out exemplars.

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
    count = held_share(min(len(rows), allowance), fraction)
    held[rng.permutation(rows)[:count]] = True
  return held


def first_held(
  labels: Int[np.ndarray, " n"], held: Bool[np.ndarray, " n"], count: float
) -> Bool[np.ndarray, " n"]:
  """The first of the held-out images of each class, one at least.

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
