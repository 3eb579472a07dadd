"""Which images an epoch draws, and in which order: decided here alone."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int
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

  >>> labels = jnp.array([0, 0, 1, 0, 0])
  >>> order = epoch_order(jax.random.key(0), labels, count=3)
  >>> sorted(order[:3].tolist())
  [0, 1, 2]
  >>> order = epoch_order(jax.random.key(0), labels, 3, jnp.array([1, 2]))
  >>> sorted(labels[order[:3]].tolist())
  [0, 1, 1]

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
