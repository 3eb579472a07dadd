"""End-to-End Incremental Learning (Castro et al. 2018): E2E."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import optax

from mnemonics_jax import losses
from mnemonics_jax.methods.base import Method


@dataclasses.dataclass(frozen=True)
class E2E(Method):
  """Cross-distilled loss, noise on gradients, and a fine-tune with a teacher.

  The balanced fine-tune is a part of the method. Commands switch it on; in Python,
  say `phase.Config(network, E2E(), stream.shape, finetune="all")`.

  Attributes:
    temperature: T of the distillation.
    noise: η, the variance of the noise on the first gradient. As in the authors'
      code, that is the gradient summed over a batch, not its mean.
    noise_decay: γ; after t steps the variance is η / (1 + t)^γ.
  """

  name: ClassVar[str] = "e2e"
  temperature: float = 2.0
  noise: float = 0.3
  noise_decay: float = 0.55

  def loss(self, student, teacher, labels, classes):
    """L_C + Σ_f L_Df: one distillation, with its own softmax, per old phase."""
    ce = losses.cross_entropy(student.logits, labels, classes.seen)
    if teacher is None or not self.distill:
      return ce, {"cross_entropy": ce}
    distill = lambda members: losses.distillation(
      student.logits, teacher.logits, members, self.temperature
    )
    kd = jnp.sum(jax.vmap(distill)(classes.old_phases))
    return ce + kd, {"cross_entropy": ce, "distillation": kd}

  def gradients(self, batch_size, key):
    """Adds noise that decays with the steps (Neelakantan et al. 2015)."""
    if not self.noise:
      return optax.identity()
    return optax.add_noise(self.noise / batch_size**2, self.noise_decay, key)

  def begin_finetune(self, variables, classes):
    """The model before the fine-tune teaches it, new classes included."""
    taught = classes._replace(old=classes.seen, new=jnp.zeros_like(classes.new))
    return variables if self.distill else None, taught
