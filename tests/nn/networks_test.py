"""ResNets: published numbers of weights, signed features, batch statistics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mnemonics_jax import bilevel, methods
from mnemonics_jax.exemplars.level import Level
from mnemonics_jax.nn import augment, networks
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Model


def _sizes(tree, name):
  flat = jax.tree_util.tree_flatten_with_path(tree)[0]
  return sum(leaf.size for path, leaf in flat if path[-1].key in name)


def test_resnet32_has_the_known_number_of_weights():
  params = jax.eval_shape(networks.resnet32().init, jax.random.key(0))["params"]
  assert _sizes(params, ["kernel"]) == 463_792
  assert _sizes(params, ["scale", "bias"]) == 2_464


def test_resnet18_has_the_known_number_of_weights():
  net = networks.resnet18()
  params = jax.eval_shape(net.init, jax.random.key(0))["params"]
  # torchvision's 11,689,512 without the classifier's 513,000.
  assert _sizes(params, ["kernel", "scale", "bias"]) == 11_176_512
  assert net.feature_dim == 512


def test_he_normal_fan_out():
  kernel = networks.resnet8().init(jax.random.key(0))["params"]["Block_2"]
  std = float(kernel["Conv_1"]["kernel"].std())
  assert std == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)


def test_channels_and_statistics_must_match():
  with pytest.raises(ValueError, match="one per channel"):
    networks.resnet8(image_shape=(8, 8, 1))


def _value_and_grad(net, variables, images):
  """Squared features with what comes along, and the gradient."""

  def loss(params):
    features, stats = net.features(variables | {"params": params}, images, True)
    return jnp.sum(features**2), (features, stats)

  program = jax.jit(jax.value_and_grad(loss, has_aux=True))
  return program(variables["params"])


def _stored_bytes(net, variables, images):
  """Bytes that a forward pass leaves for the backward pass."""

  def residuals(params):
    apply = lambda p: net.features(variables | {"params": p}, images, True)[0]
    return jax.tree.leaves(jax.vjp(apply, params)[1])

  leaves = jax.eval_shape(residuals, variables["params"])
  return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def _distance(a, b):
  """Relative distance of two trees."""
  difference = optax.tree.norm(optax.tree.sub(a, b))
  return difference / optax.tree.norm(a)


def test_features_are_signed_unless_the_last_relu_is_kept():
  make = functools.partial(networks.resnet8, image_shape=(8, 8, 3), width=4)
  variables = make().init(jax.random.key(0))
  images = jax.random.uniform(jax.random.key(1), (16, 8, 8, 3))
  signed, _ = make().features(variables, images)
  positive, _ = make(last_relu=True).features(variables, images)
  assert signed.min() < 0 <= positive.min()
  # Each map passes the ReLU before it is averaged: no mean gets smaller.
  assert (positive >= signed).all()


def test_running_statistics_take_a_tenth_of_a_batch():
  """Of mean and variance after the first convolution, by NumPy."""
  net = networks.resnet8(image_shape=(8, 8, 3), width=4)
  variables = net.init(jax.random.key(0))
  images = jax.random.uniform(jax.random.key(1), (16, 8, 8, 3))
  _, stats = net.features(variables, images, train=True)
  centred = (images - jnp.array(networks.CIFAR_MEAN)) / jnp.array(
    networks.CIFAR_STD
  )
  out = jax.lax.conv_general_dilated(
    centred, variables["params"]["Conv_0"]["kernel"], (1, 1), "SAME",
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )  # fmt: skip
  out = np.asarray(out, np.float64).reshape(-1, 4)
  first = stats["BatchNorm_0"]
  np.testing.assert_allclose(first["mean"], 0.1 * out.mean(0), rtol=1e-3)
  np.testing.assert_allclose(first["var"], 0.9 + 0.1 * out.var(0), rtol=1e-3)


def test_remat_stores_less_and_changes_nothing():
  make = functools.partial(networks.resnet8, image_shape=(16, 16, 3), width=8)
  variables = make().init(jax.random.key(0))
  images = jax.random.uniform(jax.random.key(1), (32, 16, 16, 3))
  plain = _value_and_grad(make(), variables, images)
  same = _value_and_grad(make(remat=True), variables, images)
  assert _distance(plain, same) < 1e-5
  # What remains are the weights, and an image-sized input of each block.
  plain_bytes = _stored_bytes(make(), variables, images)
  assert _stored_bytes(make(remat=True), variables, images) < plain_bytes / 2.5


def test_bfloat16_keeps_meta_gradients_in_float32():
  rows = lambda n: bilevel.Exemplars(jnp.zeros((n, 8, 8, 3)), jnp.arange(n) % 2)
  network = networks.resnet8(image_shape=(8, 8, 3), width=4, dtype="bfloat16")
  model = Model(network, CosineHead(), 2)
  for scope in ("head", "all"):
    level = Level.of(
      bilevel.BilevelConfig(inner_steps=2, scope=scope),
      model,
      methods.LUCIR(),
      augment.NoAugmentation(),
    )
    program = functools.partial(bilevel.hypergradient, **level._asdict())
    key = jax.random.key(0)
    args = rows(4), model.init(key), rows(8)
    assert "bf16" in str(jax.make_jaxpr(program)(*args, key=key))
    loss, grads = jax.eval_shape(program, *args, key=key)
    assert loss.dtype == grads.dtype == jnp.float32
