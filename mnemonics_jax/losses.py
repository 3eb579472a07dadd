"""The losses of the base methods: paper functions on small arrays.

Class masks are boolean over all classes of the run. A mask without classes
gives a loss of zero, so the same program serves every phase.
"""

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np
import optax

from mnemonics_jax.nn.heads import mask_logits, normalize

Logits = Float[Array, "n classes"]
Features = Float[Array, "n d"]
# Labels and masks also come straight from the host.
Labels = Int[Array | np.ndarray, " n"]
RowMask = Bool[Array | np.ndarray, " n"]
ClassMask = Bool[Array | np.ndarray, " classes"]
Loss = Float[Array, ""]


def cross_entropy(
  logits: Logits,
  labels: Labels,
  active: ClassMask | None = None,
  mask: RowMask | None = None,
) -> Loss:
  """L_c: softmax cross-entropy, the mean over the rows that count.

  L_c = −mean_i log softmax(z_i)[y_i], a term of Eq. 3 of Liu et al. 2020; only
  active classes enter the softmax.

  >>> logits = jnp.log(jnp.array([[1.0, 3.0, 9.0], [5.0, 0.1, 0.1]]))
  >>> active = jnp.array([True, True, False])
  >>> mask = jnp.array([True, False])
  >>> loss = cross_entropy(logits, jnp.array([0, 0]), active, mask)
  >>> round(float(loss), 4)  # log 4: one of four chances.
  1.3863

  Args:
    logits: z, for all classes of the run.
    labels: y, class indices.
    active: the classes that compete; None is all of them.
    mask: the rows that count; None is all of them.
  """
  chex.assert_rank([logits, labels], [2, 1])
  chex.assert_equal_shape_prefix([logits, labels], 1)
  if active is not None:
    chex.assert_shape(active, logits.shape[1:])
    logits = mask_logits(logits, active)
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
  if mask is None:
    return losses.mean()
  chex.assert_equal_shape([labels, mask])
  count = mask.sum(dtype=losses.dtype)
  return jnp.where(mask, losses, 0).sum() / jnp.maximum(count, 1)


def distillation(
  logits: Logits,
  teacher_logits: Logits,
  old: ClassMask,
  temperature: float = 2.0,
) -> Loss:
  """L_d: cross-entropy between softened outputs over the old classes.

  L_d = −mean_i Σ_c p_ic log q_ic with p and q the softmax of teacher and student
  logits over τ: Hinton et al. 2015, the other term of Eq. 3 of Liu et al. 2020.

  >>> student = jnp.log(jnp.array([[9.0, 1.0, 7.0]]))  # √9 : √1 is 3 : 1
  >>> teacher = jnp.log(jnp.array([[4.0, 1.0, 7.0]]))  # √4 : √1 is 2 : 1
  >>> old = jnp.array([True, True, False])
  >>> loss = distillation(student, teacher, old, temperature=2.0)
  >>> round(float(loss), 4)  # −(2/3 log 3/4 + 1/3 log 1/4)
  0.6539

  Args:
    logits: of the student, for all classes of the run.
    teacher_logits: of the old model.
    old: the classes that the old model knows.
    temperature: τ.
  """
  chex.assert_rank([logits, teacher_logits, old], [2, 2, 1])
  chex.assert_equal_shape([logits, teacher_logits])
  chex.assert_shape(old, logits.shape[1:])
  targets = jax.nn.softmax(mask_logits(teacher_logits, old) / temperature)
  log_probs = jax.nn.log_softmax(mask_logits(logits, old) / temperature)
  loss = -jnp.sum(jnp.where(old, targets * log_probs, 0.0), -1).mean()
  return jnp.where(old.any(), loss, 0.0)


def less_forget(features: Features, old_features: Features) -> Loss:
  """Less-forget constraint: features keep the direction they had.

  L_dis^G = mean_i 1 − cos(f_i, f_i^old), Eq. 6 of Hou et al. 2019.

  >>> features = jnp.array([[1.0, 0.0], [3.0, 4.0]])
  >>> old_features = jnp.array([[0.0, 2.0], [4.0, 3.0]])
  >>> loss = less_forget(features, old_features)
  >>> round(float(loss), 4)  # The cosines are 0 and 24/25.
  0.52

  Args:
    features: of the model in training.
    old_features: of the old model, for the same images.
  """
  chex.assert_rank([features, old_features], 2)
  chex.assert_equal_shape([features, old_features])
  cosines = jnp.sum(normalize(features) * normalize(old_features), -1)
  return jnp.mean(1.0 - cosines)


def margin_ranking(
  cosines: Logits,
  labels: Labels,
  old: ClassMask,
  new: ClassMask,
  *,
  top: int = 2,
  margin: float = 0.5,
  reduction: str = "sum",
) -> Loss:
  """Inter-class separation: old samples stay away from new classes.

  L_mr = mean_i Σ_k max(0, m − cos(f_i, w_y) + cos(f_i, w_k)), Eq. 8 of Hou et
  al. 2019: the mean over samples of old classes, the sum over the K new classes
  that are nearest to each of them.

  >>> cosines = jnp.array([[0.9, 0.6, 0.3], [0.0, 0.8, 0.2]])
  >>> old = jnp.array([True, False, False])
  >>> loss = margin_ranking(cosines, jnp.array([0, 1]), old, ~old)
  >>> round(float(loss), 4)  # max(0, .5 − .9 + .6) + max(0, .5 − .9 + .3)
  0.2

  Args:
    cosines: of features and head rows, for all classes of the run.
    labels: y, class indices.
    old: classes whose samples are held away.
    new: classes from which they are held away.
    top: K.
    margin: m.
    reduction: over the K classes: `sum`, as in the equation, or `mean`, over
      those of them that there are.
  """
  if reduction not in ("sum", "mean"):
    raise ValueError(f"reduction={reduction!r}: choose sum or mean.")
  chex.assert_rank([cosines, labels, old, new], [2, 1, 1, 1])
  chex.assert_equal_shape_prefix([cosines, labels], 1)
  chex.assert_shape([old, new], cosines.shape[1:])
  truth = jnp.take_along_axis(cosines, labels[:, None], -1)
  # Sorted, because XLA cannot split top_k over devices.
  hardest = jnp.sort(mask_logits(cosines, new), descending=True)[:, :top]
  # Fewer new classes than `top`: masked scores are hugely negative, so the
  # hinge is exactly zero for them.
  hinge = jnp.maximum(0.0, margin - truth + hardest).sum(-1)
  if reduction == "mean":
    hinge = hinge / jnp.clip(new.sum(), 1, top)
  is_old = old[labels]
  return jnp.sum(hinge * is_old) / jnp.maximum(is_old.sum(), 1)


def binary_cross_entropy(
  logits: Logits, targets: Float[Array, "n classes"], active: ClassMask
) -> Loss:
  """iCaRL's loss: each class is a yes-or-no question of its own.

  −mean_i Σ_c [t_ic log σ(z_ic) + (1 − t_ic) log(1 − σ(z_ic))] over the active
  classes: Alg. 3 of Rebuffi et al. 2017.

  >>> logits = jnp.array([[0.0, jnp.log(3.0), 5.0]])  # σ is 1/2 and 3/4.
  >>> targets = jnp.array([[1.0, 0.0, 0.0]])
  >>> active = jnp.array([True, True, False])
  >>> loss = binary_cross_entropy(logits, targets, active)
  >>> round(float(loss), 4)  # −log 1/2 − log 1/4
  2.0794

  Args:
    logits: z, for all classes of the run.
    targets: t, in [0, 1].
    active: the classes that are asked for.
  """
  chex.assert_rank([logits, targets, active], [2, 2, 1])
  chex.assert_equal_shape([logits, targets])
  chex.assert_shape(active, logits.shape[1:])
  losses = optax.sigmoid_binary_cross_entropy(logits, targets)
  return jnp.sum(losses * active, -1).mean()
