"""Distillation from the old model: LwF, and iCaRL in both of its forms."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from mnemonics_jax import losses
from mnemonics_jax.methods.base import Method


@dataclasses.dataclass(frozen=True)
class LwF(Method):
  """L_all = λ·L_c + (1 − λ)·L_d, Eq. 3 of Liu et al. 2020 (Li & Hoiem 2016).

  Attributes:
    balance: λ, the weight of the cross-entropy.
    temperature: τ, which softens old and new logits.
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


@dataclasses.dataclass(frozen=True)
class ICaRL(LwF):
  """iCaRL as Liu et al. 2020 compare it: LwF's loss, the nearest-mean read-out."""

  name: ClassVar[str] = "icarl"
  readout: ClassVar[str] = "nme"


@dataclasses.dataclass(frozen=True)
class ICaRLBCE(Method):
  """iCaRL as Rebuffi et al. 2017 define it: sigmoids with soft targets."""

  name: ClassVar[str] = "icarl_bce"
  readout: ClassVar[str] = "nme"

  def loss(self, student, teacher, labels, classes):
    """Sigmoid cross-entropy; the old model gives the targets of old classes."""
    targets = jax.nn.one_hot(labels, student.logits.shape[-1])
    if teacher is not None and self.distill:
      old = jax.nn.sigmoid(teacher.logits)
      targets = jnp.where(classes.old, old, targets)
    loss = losses.binary_cross_entropy(student.logits, targets, classes.seen)
    return loss, {"binary_cross_entropy": loss}
