"""Learning without Forgetting (Li & Hoiem 2016), with exemplars."""

import dataclasses
from typing import ClassVar

from mnemonics_jax import losses
from mnemonics_jax.methods.base import Method


@dataclasses.dataclass(frozen=True)
class LwF(Method):
  """L_all = λ·L_c + (1 − λ)·L_d (Eq. 3 of Liu et al. 2020).

  >>> LwF(balance=0.7).readout
  'head'

  Attributes:
    balance: λ, the weight of the cross-entropy.
    temperature: τ, by which old and new logits are softened.
  """

  name: ClassVar[str] = "lwf"
  balance: float = 0.5
  temperature: float = 2.0

  def loss(self, student, teacher, labels, classes):
    """λ·L_c over seen classes and (1 − λ)·L_d over old ones."""
    ce = losses.cross_entropy(student.logits, labels, classes.seen)
    if teacher is None or not self.distill:
      return ce, {"cross_entropy": ce}
    kd = losses.distillation(
      student.logits, teacher.logits, classes.old, self.temperature
    )
    loss = self.balance * ce + (1 - self.balance) * kd
    return loss, {"cross_entropy": ce, "distillation": kd}
