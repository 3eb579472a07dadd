"""Randomness: one root key, then the phase, then the purpose."""

import jax
import numpy as np

_PURPOSES = (
  "train", "holdout", "select", "exemplars", "adjust", "discard", "finetune",
)  # fmt: skip


class Keys:
  """Independent randomness for each purpose within a phase."""

  def __init__(self, root: jax.Array, phase: int):
    self._key = jax.random.fold_in(root, phase)

  def __call__(self, purpose: str) -> jax.Array:
    return jax.random.fold_in(self._key, _PURPOSES.index(purpose))

  def numpy(self, purpose: str) -> np.random.Generator:
    """A NumPy generator for what is decided on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(self(purpose))))
