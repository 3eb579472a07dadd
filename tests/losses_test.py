"""Losses against numbers computed by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax import losses

NONE = jnp.zeros(4, bool)
OLD = jnp.array([True, True, False, False])
NEW = jnp.array([False, False, True, False])
SEEN = OLD | NEW


def test_cross_entropy_ignores_unseen_classes():
  logits = jnp.log(jnp.array([[1.0, 2.0, 1.0, 99.0], [3.0, 1.0, 4.0, 99.0]]))
  # Shares of the truth: 2/4 and 4/8.
  loss = losses.cross_entropy(logits, jnp.array([1, 2]), SEEN)
  assert float(loss) == pytest.approx(np.log(2), rel=1e-6)


def test_cross_entropy_over_all_classes_is_the_mean_over_all_rows():
  logits = jnp.log(jnp.array([[1.0, 3.0], [1.0, 1.0]]))
  loss = losses.cross_entropy(logits, jnp.array([0, 1]))
  assert float(loss) == pytest.approx((np.log(4) + np.log(2)) / 2, rel=1e-6)


def test_cross_entropy_counts_the_rows_of_the_mask():
  logits = jnp.log(jnp.array([[1.0, 3.0], [1.0, 1.0], [1.0, 7.0]]))
  labels, mask = jnp.array([0, 1, 0]), jnp.array([True, False, True])
  loss = losses.cross_entropy(logits, labels, mask=mask)
  assert float(loss) == pytest.approx((np.log(4) + np.log(8)) / 2, rel=1e-6)
  # Padding may hold any number, and no row at all costs nothing.
  value, grad = jax.value_and_grad(losses.cross_entropy)(
    logits.at[1].set(1e6), labels, mask=mask
  )
  assert float(value) == pytest.approx(float(loss)) and not grad[1].any()
  assert float(losses.cross_entropy(logits, labels, mask=mask & ~mask)) == 0.0


WRONG = {
  "cross_entropy of one row": lambda: losses.cross_entropy(
    jnp.zeros(4), jnp.array([0])
  ),
  "cross_entropy with one-hot labels": lambda: losses.cross_entropy(
    jnp.zeros((2, 4)), jnp.eye(4, dtype=int)[:2]
  ),
  "cross_entropy with a mask of other length": lambda: losses.cross_entropy(
    jnp.zeros((2, 4)), jnp.array([0, 1]), mask=jnp.ones(1, bool)
  ),
  "cross_entropy with other classes": lambda: losses.cross_entropy(
    jnp.zeros((2, 4)), jnp.array([0, 1]), active=jnp.ones(1, bool)
  ),
  "distillation of other rows": lambda: losses.distillation(
    jnp.zeros((2, 4)), jnp.zeros((1, 4)), OLD
  ),
  "less_forget of other features": lambda: losses.less_forget(
    jnp.zeros((2, 4)), jnp.zeros((2, 1))
  ),
  "margin_ranking with other labels": lambda: losses.margin_ranking(
    jnp.zeros((2, 4)), jnp.array([0]), OLD, NEW
  ),
  "binary_cross_entropy with class indices": lambda: (
    losses.binary_cross_entropy(jnp.zeros((2, 4)), jnp.zeros(2), OLD)
  ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_shapes_that_would_broadcast_are_refused(mistake):
  with pytest.raises((AssertionError, TypeError)):
    WRONG[mistake]()


def test_distillation_by_hand():
  # Temperature 2 takes the square root of the odds: teacher 4:1 becomes 2:1,
  # student 9:1 becomes 3:1.
  teacher = jnp.log(jnp.array([[4.0, 1.0, 7.0, 7.0]]))
  student = jnp.log(jnp.array([[9.0, 1.0, 5.0, 5.0]]))
  expected = -(2 / 3 * np.log(3 / 4) + 1 / 3 * np.log(1 / 4))
  loss = losses.distillation(student, teacher, OLD, temperature=2.0)
  assert float(loss) == pytest.approx(expected, rel=1e-6)


def test_distillation_without_old_classes_is_zero_with_zero_gradient():
  logits = jnp.ones((2, 4))
  value, grad = jax.value_and_grad(losses.distillation)(logits, logits, NONE)
  assert float(value) == 0.0
  assert not np.any(grad)


def test_less_forget_by_hand():
  features = jnp.array([[1.0, 0.0], [3.0, 4.0]])
  old = jnp.array([[0.0, 2.0], [4.0, 3.0]])
  # cos = 0 and 24/25.
  loss = losses.less_forget(features, old)
  assert float(loss) == pytest.approx((1.0 + 1 / 25) / 2, rel=1e-6)


def test_less_forget_has_a_gradient_at_zero_features():
  grad = jax.grad(losses.less_forget)(jnp.zeros((1, 3)), jnp.ones((1, 3)))
  assert np.all(np.isfinite(grad))


def test_margin_ranking_by_hand():
  cosines = jnp.array(
    [
      # Old, truth 0.9: max(0, 0.5 − 0.9 + 0.6) + max(0, 0.5 − 0.9 + 0.3).
      [0.9, 0.1, 0.6, 0.3],
      [0.2, 0.4, 0.5, 0.1],  # Old, truth 0.4: 0.6 + 0.2
      [0.0, 0.0, 0.1, 0.9],  # New: does not count.
    ]
  )
  new = jnp.array([False, False, True, True])
  loss = losses.margin_ranking(cosines, jnp.array([0, 1, 2]), OLD, new)
  assert float(loss) == pytest.approx((0.2 + 0.0 + 0.6 + 0.2) / 2, rel=1e-5)


@pytest.mark.parametrize("reduction", ["sum", "mean"])
def test_margin_ranking_with_fewer_new_classes_than_k(reduction):
  """The sum of one, and its mean."""
  cosines = jnp.array([[0.5, 0.1, 0.4, 0.99]])
  loss = losses.margin_ranking(
    cosines, jnp.array([0]), OLD, NEW, reduction=reduction
  )
  assert float(loss) == pytest.approx(0.4, rel=1e-6)


def test_margin_ranking_may_be_a_mean_over_classes():
  # 0.5 − 0.9 + 0.6 and 0.5 − 0.9 + 0.5, halved.
  cosines = jnp.array([[0.9, 0.1, 0.6, 0.5]])
  new = jnp.array([False, False, True, True])
  ranking = lambda reduction: losses.margin_ranking(
    cosines, jnp.array([0]), OLD, new, reduction=reduction
  )
  assert float(ranking("mean")) == pytest.approx((0.2 + 0.1) / 2, rel=1e-5)
  assert float(ranking("sum")) == pytest.approx(0.2 + 0.1, rel=1e-5)
  with pytest.raises(ValueError, match="choose sum or mean"):
    ranking("max")


def test_margin_ranking_without_old_samples_is_zero():
  cosines = jnp.array([[0.5, 0.1, 0.4, 0.9]])
  assert float(losses.margin_ranking(cosines, jnp.array([2]), OLD, NEW)) == 0.0


def test_binary_cross_entropy_by_hand():
  logits = jnp.array([[0.0, np.log(3.0), 5.0, 5.0]])
  targets = jnp.array([[1.0, 0.25, 0.0, 0.0]])
  # −log ½ − (¼ log ¾ + ¾ log ¼); the other classes are not active.
  expected = np.log(2) - 0.25 * np.log(0.75) - 0.75 * np.log(0.25)
  loss = losses.binary_cross_entropy(logits, targets, OLD)
  assert float(loss) == pytest.approx(expected, rel=1e-6)
