"""The base methods. `base` says what a method is and how to add one."""

from collections.abc import Mapping

from mnemonics_jax import registry
from mnemonics_jax.methods.base import Classes, Joint, Method
from mnemonics_jax.methods.bic import BiC
from mnemonics_jax.methods.e2e import E2E
from mnemonics_jax.methods.lucir import LUCIR
from mnemonics_jax.methods.lwf import ICaRL, ICaRLBCE, LwF

METHODS: Mapping[str, type[Method]] = registry.Objects(registry.METHODS)

__all__ = [
  "E2E",
  "LUCIR",
  "METHODS",
  "BiC",
  "Classes",
  "ICaRL",
  "ICaRLBCE",
  "Joint",
  "LwF",
  "Method",
]
