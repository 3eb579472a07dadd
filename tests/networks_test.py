"""Networks: published parameter counts, signed features, batch statistics."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax import networks


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


def test_resnet18_runs():
  net = networks.resnet18(width=4, image_shape=(64, 64, 3))
  variables = net.init(jax.random.key(0))
  features, _ = net.features(variables, jnp.full((2, 64, 64, 3), 0.5))
  assert features.shape == (2, 32)


@pytest.fixture(scope="module")
def small():
  net = networks.resnet8(width=4, image_shape=(8, 8, 3))
  return net, net.init(jax.random.key(0))


def test_features_are_signed(small):
  net, variables = small
  images = jax.random.uniform(jax.random.key(1), (16, 8, 8, 3))
  features, _ = net.features(variables, images)
  assert features.shape == (16, net.feature_dim)
  assert (features < 0).any() and (features > 0).any()


def test_evaluation_leaves_statistics_and_training_moves_them(small):
  net, variables = small
  images = jax.random.uniform(jax.random.key(1), (16, 8, 8, 3))
  _, same = net.features(variables, images, train=False)
  assert same is variables["batch_stats"]
  _, moved = net.features(variables, images, train=True)
  changed = jax.tree.map(lambda a, b: bool((a != b).any()), same, moved)
  assert all(jax.tree.leaves(changed))


def test_images_are_normalised_inside():
  plain = dict(width=4, image_shape=(8, 8, 3))
  raw = networks.resnet8(**plain, mean=(0.0,) * 3, std=(1.0,) * 3)
  own = networks.resnet8(**plain, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
  variables = raw.init(jax.random.key(0))
  images = jax.random.uniform(jax.random.key(1), (2, 8, 8, 3))
  by_hand = (images - jnp.array([0.5, 0.4, 0.3])) / jnp.array([0.2, 0.3, 0.4])
  np.testing.assert_allclose(
    own.features(variables, images)[0],
    raw.features(variables, by_hand)[0],
    rtol=1e-5,
    atol=1e-5,
  )


def test_he_normal_fan_out():
  kernel = networks.resnet8().init(jax.random.key(0))["params"]["Block_2"]
  std = float(kernel["Conv_1"]["kernel"].std())
  assert std == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)


def test_channels_and_statistics_must_match():
  with pytest.raises(ValueError, match="one per channel"):
    networks.resnet8(image_shape=(8, 8, 1))
