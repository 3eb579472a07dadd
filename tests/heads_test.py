"""Heads: masking, cosine scores, imprinting."""

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import heads


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


def test_imprint_writes_only_new_rows_at_the_old_rows_norm():
  weight = jnp.array([[3.0, 4.0], [0.0, 1.0], [9.0, 9.0], [7.0, 7.0]])
  means = jnp.array([[0.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
  old = jnp.array([True, True, False, False])
  new = jnp.array([False, False, True, False])
  out = heads.imprint({"weight": weight, "sigma": 1.0}, means, old, new)
  # Old norms 5 and 1: the new row is 3 long.
  np.testing.assert_allclose(out["weight"][2], [3.0, 0.0], rtol=1e-6)
  for row in (0, 1, 3):
    np.testing.assert_array_equal(out["weight"][row], weight[row])
