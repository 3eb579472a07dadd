"""Batch normalisation: by hand, and flax's to the second derivative."""

import functools

from flax import linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.nn.layers import BatchNorm

OURS = functools.partial(BatchNorm, momentum=0.7, epsilon=1e-3)
FLAX = functools.partial(nn.BatchNorm, momentum=0.7, epsilon=1e-3)


def arrays(dtype=np.float64):
  """Images and the variables of a normalisation of five channels."""
  rng = np.random.default_rng(0)
  x = rng.normal(1.0, 2.0, (4, 3, 2, 5))
  names = {"params": ("scale", "bias"), "batch_stats": ("mean", "var")}
  variables = {
    group: {name: rng.uniform(0.5, 2.0, 5) for name in inside}
    for group, inside in names.items()
  }
  return jnp.asarray(x, dtype), jax.tree.map(jnp.asarray, variables)


def derivatives(make, train):
  """Value, statistics, gradients, and gradients of a function of these."""
  module = make(use_running_average=not train)
  normalise = functools.partial(module.apply, mutable=["batch_stats"])

  def loss(x, variables):
    return jnp.sum(jnp.sin(normalise(variables, x)[0]))

  def meta_loss(x, variables):
    gradients = jax.grad(loss, (0, 1))(x, variables)
    return sum(jnp.sum(jnp.cos(g)) for g in jax.tree.leaves(gradients))

  def evaluate(x, variables):
    return {
      "value": normalise(variables, x),
      "first": jax.grad(loss, (0, 1))(x, variables),
      "second": jax.grad(meta_loss, (0, 1))(x, variables),
    }

  return jax.jit(evaluate)


@pytest.mark.parametrize("train", [True, False])
def test_flax_to_the_second_derivative(train):
  with jax.enable_x64(True):
    x, variables = arrays()
    ours = derivatives(OURS, train)(x, variables)
    expected = derivatives(FLAX, train)(x, variables)
    assert jax.tree.structure(ours) == jax.tree.structure(expected)
    pairs = zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True)
    for a, b in pairs:
      assert a.dtype == b.dtype == np.float64
      np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-12)


def test_variables_are_those_of_flax():
  x = jnp.zeros((2, 3, 4))
  init = lambda make: make(use_running_average=False).init(jax.random.key(0), x)
  ours, expected = init(OURS), init(FLAX)
  describe = lambda tree: jax.tree.map(lambda a: (a.shape, a.dtype, a[0]), tree)
  assert describe(ours) == describe(expected)


def test_by_hand():
  x = np.array([[1.0, 10.0], [3.0, 30.0]], np.float32)  # Means 2 and 20.
  variables = {
    "params": {"scale": np.array([2.0, 1.0]), "bias": np.array([5.0, 0.0])},
    "batch_stats": {"mean": np.zeros(2), "var": np.ones(2)},
  }
  module = BatchNorm(use_running_average=False, momentum=0.5, epsilon=3.0)
  y, moved = module.apply(variables, jnp.asarray(x), mutable=["batch_stats"])
  # Variances 1 and 100: deviations are the roots of 4 and 103.
  np.testing.assert_allclose(y[:, 0], [4.0, 6.0], rtol=1e-6)
  np.testing.assert_allclose(y[:, 1], [-10 / 103**0.5, 10 / 103**0.5], 1e-6)
  stats = moved["batch_stats"]
  np.testing.assert_allclose(stats["mean"], [1.0, 10.0], rtol=1e-6)
  np.testing.assert_allclose(stats["var"], [1.0, 50.5], rtol=1e-6)


def test_half_precision_is_summed_in_float32():
  # 4,096 numbers whose sum bfloat16, with its eight bits, cannot hold.
  x = jnp.where(jnp.arange(4096) % 2, 2.0, 1.0).astype(jnp.bfloat16)[:, None]
  module = BatchNorm(use_running_average=False, momentum=0.0)
  variables = module.init(jax.random.key(0), x)
  y, moved = module.apply(variables, x, mutable=["batch_stats"])
  assert y.dtype == jnp.bfloat16
  assert jax.tree.map(lambda a: a.dtype, moved["batch_stats"]) == {
    "mean": jnp.float32,
    "var": jnp.float32,
  }
  assert float(moved["batch_stats"]["mean"][0]) == 1.5
  assert float(moved["batch_stats"]["var"][0]) == 0.25
  np.testing.assert_allclose(np.asarray(y[:2, 0], np.float32), [-1, 1], 1e-2)


def test_constant_channel_has_no_negative_variance():
  x = jnp.full((1000, 1), 1234.567)
  module = BatchNorm(use_running_average=False, epsilon=0.0001)
  variables = module.init(jax.random.key(0), x)
  y, _ = module.apply(variables, x, mutable=["batch_stats"])
  assert np.isfinite(y).all()


def test_stores_no_second_copy_of_the_images():
  def stored(make):
    module = make(use_running_average=False)
    x = jnp.zeros((8, 4, 4, 16))
    variables = module.init(jax.random.key(0), x)
    apply = lambda x: module.apply(variables, x, mutable=["batch_stats"])[0]
    residuals = lambda x: jax.tree.leaves(jax.vjp(apply, x)[1])
    return sum(leaf.size for leaf in jax.eval_shape(residuals, x)) / x.size

  assert stored(OURS) < 1.2 < 1.8 < stored(FLAX)
