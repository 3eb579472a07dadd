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

import importlib
from typing import TYPE_CHECKING, Any

from mnemonics_jax.version import __version__

if TYPE_CHECKING:
  from mnemonics_jax import bilevel
  from mnemonics_jax.protocol import PerClass, Total
  from mnemonics_jax.types import Batch, Exemplars, PhaseResult, PhaseState

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

_HOME = {
  "Batch": "types",
  "Exemplars": "types",
  "PerClass": "protocol",
  "PhaseResult": "types",
  "PhaseState": "types",
  "Total": "protocol",
}


def __getattr__(name: str) -> Any:
  # On first use: whoever only reads data need not wait for JAX.
  if name == "bilevel":
    return importlib.import_module(f"{__name__}.bilevel")
  if name not in _HOME:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
