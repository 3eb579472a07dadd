"""Outputs and classes whose losses are computed by hand."""

import jax.numpy as jnp
import numpy as np

from mnemonics_jax import methods
from mnemonics_jax.nn.model import Outputs

C = 4
CLASSES = methods.Classes(
  old=jnp.array([True, True, False, False]),
  new=jnp.array([False, False, True, False]),
)


def masks(n_old: int, n_new: int, total: int) -> methods.Classes:
  """The first classes are old, the next ones new."""
  index = np.arange(total)
  old = index < n_old
  return methods.Classes(
    jnp.asarray(old), jnp.asarray((index < n_old + n_new) & ~old)
  )


def outputs(odds, features=((1.0, 0.0),)) -> Outputs:
  """Outputs whose softmax has these odds."""
  logits = jnp.log(jnp.asarray(odds))
  return Outputs(jnp.asarray(features), logits, logits / 10)


# Student 1:2:1, truth class 1; over the old classes at τ = 2 it says 1:√2.
STUDENT = outputs([[1.0, 2.0, 1.0, 50.0]])
# Teacher 4:1 over the old classes, 2:1 at τ = 2.
TEACHER = outputs([[4.0, 1.0, 1.0, 1.0]], [[0.6, 0.8]])
LABELS = jnp.array([1])
CE = np.log(2)
KD = -(2 / 3 * np.log(1 / (1 + 2**0.5)) + 1 / 3 * np.log(2**0.5 / (1 + 2**0.5)))
