"""The losses of the base methods: paper functions on small arrays.

Class masks are boolean over all classes of the run. A mask without classes
gives a loss of zero, so the same program serves every phase.
"""

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import optax

from mnemonics_jax.heads import mask_logits, normalize

Logits = Float[Array, "n classes"]
Labels = Int[Array, " n"]
Mask = Bool[Array, " classes"]


def cross_entropy(logits: Logits, labels: Labels, active: Mask) -> Array:
  """L_c: softmax cross-entropy over the active classes, mean over the batch."""
  chex.assert_rank([logits, labels, active], [2, 1, 1])
  logits = mask_logits(logits, active)
  return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def distillation(
  logits: Logits, teacher_logits: Logits, old: Mask, temperature: float = 2.0
) -> Array:
  """L_d: cross-entropy between softened outputs over the old classes."""
  chex.assert_equal_shape([logits, teacher_logits])
  targets = jax.nn.softmax(mask_logits(teacher_logits, old) / temperature)
  log_probs = jax.nn.log_softmax(mask_logits(logits, old) / temperature)
  loss = -jnp.sum(jnp.where(old, targets * log_probs, 0.0), -1).mean()
  return jnp.where(old.any(), loss, 0.0)


def less_forget(
  features: Float[Array, "n d"], old_features: Float[Array, "n d"]
) -> Array:
  """Less-forget constraint, Eq. 6 of Hou et al. 2019: mean of 1 − cos(f, f_old)."""
  chex.assert_equal_shape([features, old_features])
  cosines = jnp.sum(normalize(features) * normalize(old_features), -1)
  return jnp.mean(1.0 - cosines)


def margin_ranking(
  cosines: Logits,
  labels: Labels,
  old: Mask,
  new: Mask,
  *,
  top: int = 2,
  margin: float = 0.5,
) -> Array:
  """Inter-class separation, Eq. 8 of Hou et al. 2019.

  For samples of old classes, the sum over the `top` highest new-class cosines
  of max(0, margin − cos_truth + cos_new), averaged over those samples.
  """
  truth = jnp.take_along_axis(cosines, labels[:, None], -1)
  # Sorted, because XLA cannot split top_k over devices.
  hardest = jnp.sort(mask_logits(cosines, new), descending=True)[:, :top]
  # Fewer new classes than `top`: masked scores are hugely negative, so the
  # hinge is exactly zero for them.
  hinge = jnp.maximum(0.0, margin - truth + hardest).sum(-1)
  is_old = old[labels]
  return jnp.sum(hinge * is_old) / jnp.maximum(is_old.sum(), 1)


def binary_cross_entropy(
  logits: Logits, targets: Float[Array, "n classes"], active: Mask
) -> Array:
  """iCaRL's loss: sigmoid cross-entropy summed over the active classes."""
  chex.assert_equal_shape([logits, targets])
  losses = optax.sigmoid_binary_cross_entropy(logits, targets)
  return jnp.sum(losses * active, -1).mean()
