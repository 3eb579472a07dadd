"""Which images an epoch draws, and in which order: decided here alone."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int
import numpy as np

from mnemonics_jax.bilevel.batches import shuffle


@jax.jit
def epoch_order(
  key: Array,
  labels: Int[Array, " capacity"] | Int[np.ndarray, " capacity"],
  count: Int[Array, ""] | int,
) -> Int[Array, " capacity"]:
  """Rows as an epoch draws them: every image once, those of all classes mixed.

  >>> order = epoch_order(jax.random.key(0), jnp.array([0, 0, 1, 0, 0]), count=3)
  >>> sorted(order[:3].tolist())
  [0, 1, 2]

  Args:
    key: of the epoch.
    labels: class of each row, padded.
    count: how many of the rows are real; they come first.
  """
  return shuffle(key, jnp.arange(len(labels)) < count)
