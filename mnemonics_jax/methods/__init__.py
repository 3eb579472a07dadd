"""The base methods, one file each; `base` tells how to add one."""

from mnemonics_jax.methods.base import Classes, Method
from mnemonics_jax.methods.bic import BiC
from mnemonics_jax.methods.e2e import E2E
from mnemonics_jax.methods.icarl import ICaRL, ICaRLBCE
from mnemonics_jax.methods.joint import Joint
from mnemonics_jax.methods.lucir import LUCIR
from mnemonics_jax.methods.lwf import LwF

METHODS: dict[str, type[Method]] = {
  cls.name: cls for cls in (LwF, ICaRL, ICaRLBCE, E2E, BiC, LUCIR, Joint)
}

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
