"""Mnemonics training in JAX: class-incremental learning with learned exemplars.

The words used throughout, and the paper's symbols for them:

  phase         i: one arrival of new classes; phase 0 brings the base classes
  variables     Θ: the model's arrays (`params`, `batch_stats`, ...)
  transfer      T: scales and shifts over frozen weights
  exemplars     E: the few images kept of each class, here also parameters
  memory        E_{0:i}: the exemplars of all classes seen, uint8, on a budget
  base level    training a temporary model Θ' on exemplars (learning rate α₂)
  meta level    moving exemplars by the gradient through that training (β)
  head, nme     the two read-outs: classifier head, nearest mean of exemplars
  old, new      classes of earlier phases, classes of this one; both are `seen`
"""

from mnemonics_jax import bilevel
from mnemonics_jax.protocol import PerClass, Total
from mnemonics_jax.types import Batch, Exemplars, PhaseResult, PhaseState
from mnemonics_jax.version import __version__

__all__ = [
  "Batch",
  "Exemplars",
  "PerClass",
  "PhaseResult",
  "PhaseState",
  "Total",
  "__version__",
  "bilevel",
]
