"""Heads: masking, cosine scores, imprinting."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.nn import heads


def test_cosine_scores_by_hand():
  params = {"weight": jnp.array([[3.0, 4.0], [0.0, 2.0]]), "sigma": 10.0}
  scores = heads.CosineHead().scores(params, jnp.array([[5.0, 0.0]]))
  np.testing.assert_allclose(scores.cosines, [[0.6, 0.0]], atol=1e-6)
  np.testing.assert_allclose(scores.logits, [[6.0, 0.0]], atol=1e-5)


def test_linear_scores_by_hand():
  params = {"weight": jnp.array([[1.0, 2.0]]), "bias": jnp.array([0.5])}
  scores = heads.LinearHead().scores(params, jnp.array([[3.0, 4.0]]))
  np.testing.assert_allclose(scores.logits, [[11.5]])


def test_zero_rows_and_features_have_finite_gradients():
  head = heads.CosineHead()
  params = {"weight": jnp.zeros((3, 2)), "sigma": jnp.float32(1.0)}
  loss = lambda p, f: head.scores(p, f).logits.sum()
  grads = jax.grad(loss, (0, 1))(params, jnp.zeros((2, 2)))
  assert all(np.all(np.isfinite(g)) for g in jax.tree.leaves(grads))


def test_masked_classes_never_win_and_stay_finite():
  logits = jnp.array([[1.0, 5.0, 2.0]])
  masked = heads.mask_logits(logits, jnp.array([True, False, True]))
  assert int(masked.argmax()) == 2
  assert np.all(np.isfinite(masked))
  assert float(jax.nn.softmax(masked)[0, 1]) == 0.0


def test_imprint_writes_rows_of_the_given_norm_and_no_others():
  weight = jnp.array([[3.0, 4.0], [0.0, 1.0], [9.0, 9.0], [7.0, 7.0]])
  means = jnp.array([[0.0, 0.0], [5.0, 0.0], [2.0, 0.0], [0.6, 0.8]])
  where = jnp.array([False, False, True, True])
  params = {"weight": weight, "sigma": 1.0}
  out = heads.imprint(params, means, where, 3.0)
  assert out["sigma"] == 1.0
  expected = [[3.0, 4.0], [0.0, 1.0], [3.0, 0.0], [1.8, 2.4]]
  np.testing.assert_allclose(out["weight"], expected, rtol=1e-6)
  # Without a norm rows are unit vectors.
  unit = heads.imprint(params, means, where)["weight"]
  np.testing.assert_allclose(unit[2:], [[1.0, 0.0], [0.6, 0.8]], rtol=1e-6)
  np.testing.assert_array_equal(params["weight"], weight)


def test_imprint_refuses_means_of_another_shape():
  params = {"weight": jnp.ones((3, 2)), "sigma": 1.0}
  with pytest.raises((AssertionError, TypeError)):
    heads.imprint(params, jnp.ones((2, 2)), jnp.ones(2, bool))
