"""iCaRL (Rebuffi et al. 2017): distillation with a nearest-mean read-out."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from mnemonics_jax import losses
from mnemonics_jax.methods.base import Method
from mnemonics_jax.methods.lwf import LwF


@dataclasses.dataclass(frozen=True)
class ICaRL(LwF):
  """LwF's loss, as in the comparison of Liu et al. 2020; classifies by `nme`.

  >>> ICaRL().readout
  'nme'
  """

  name: ClassVar[str] = "icarl"
  readout: ClassVar[str] = "nme"


@dataclasses.dataclass(frozen=True)
class ICaRLBCE(Method):
  """The original loss: sigmoids, the old network's outputs as soft targets.

  >>> ICaRLBCE(distill=False).readout
  'nme'
  """

  name: ClassVar[str] = "icarl_bce"
  readout: ClassVar[str] = "nme"

  def loss(self, student, teacher, labels, classes):
    """Sigmoid cross-entropy; old classes' targets are what the old model says."""
    targets = jax.nn.one_hot(labels, student.logits.shape[-1])
    if teacher is not None and self.distill:
      old = jax.nn.sigmoid(teacher.logits)
      targets = jnp.where(classes.old, old, targets)
    loss = losses.binary_cross_entropy(student.logits, targets, classes.seen)
    return loss, {"binary_cross_entropy": loss}
