"""What every network promises, tested as soon as it is in `registry.NETWORKS`."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mnemonics_jax import registry
from mnemonics_jax.identity import identity, restore
from mnemonics_jax.nn.networks import NETWORKS

SHAPE = (16, 16, 3)
MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
IMAGES = jax.random.uniform(jax.random.key(1), (4, *SHAPE))
every_network = pytest.mark.parametrize("name", [*registry.NETWORKS])


def make(name, **options):
  own = {"image_shape": SHAPE, "mean": MEAN, "std": STD, "width": 2}
  return NETWORKS[name](**own | options)


def loss(params, variables, images, *, network, train):
  """Mean squared features, with what else comes out."""
  features, stats = network.features(
    variables | {"params": params}, images, train
  )
  return jnp.mean(features**2), (features, stats)


@functools.cache
def passed(name, train, **options):
  """Variables, features, statistics and both gradients of a pass."""
  network = make(name, **options)
  variables = make(name).init(jax.random.key(0))
  program = jax.jit(
    jax.value_and_grad(loss, (0, 2), has_aux=True),
    static_argnames=("network", "train"),
  )
  (_, (features, stats)), gradients = program(
    variables["params"], variables, IMAGES, network=network, train=train
  )
  return variables, features, stats, gradients


@every_network
def test_features_are_vectors_of_the_length_it_says(name):
  network = make(name)
  _, features, _, _ = passed(name, train=False)
  assert features.shape == (len(IMAGES), network.feature_dim)
  assert features.dtype == jnp.float32 and jnp.isfinite(features).all()
  assert jnp.ptp(features, 0).any()  # They tell images apart.


@every_network
@pytest.mark.parametrize("train", [False, True])
def test_gradients_reach_pixels_and_parameters(name, train):
  _, _, _, (by_params, by_images) = passed(name, train=train)
  assert by_images.shape == IMAGES.shape
  for gradient in jax.tree.leaves((by_params, by_images)):
    assert jnp.isfinite(gradient).all()
  assert by_images.any((1, 2, 3)).all()
  assert optax.tree.norm(by_params) > 0


@every_network
def test_statistics_move_in_training_alone(name):
  variables, _, same, _ = passed(name, train=False)
  _, _, moved, _ = passed(name, train=True)
  before = variables.get("batch_stats", {})
  jax.tree.map(np.testing.assert_array_equal, same, before)
  differ = jax.tree.map(lambda a, b: bool((a != b).any()), moved, before)
  assert all(jax.tree.leaves(differ))


@every_network
def test_images_are_normalised_inside(name):
  """Unless the network has no such arguments."""
  variables, features, _, _ = passed(name, train=False)
  raw = make(name, mean=(0.0,) * 3, std=(1.0,) * 3)
  normal = (IMAGES - jnp.array(MEAN)) / jnp.array(STD)
  by_hand = jax.jit(lambda x: raw.features(variables, x)[0])(normal)
  np.testing.assert_allclose(features, by_hand, rtol=1e-4, atol=1e-5)


@every_network
def test_half_precision_stays_inside(name):
  """Parameters, statistics, features and gradients remain float32."""
  _, full, _, _ = passed(name, train=True)
  variables, half, stats, gradients = passed(name, train=True, dtype="bfloat16")
  for leaf in jax.tree.leaves((variables, half, stats, gradients)):
    assert leaf.dtype == jnp.float32
  distance = optax.tree.norm(half - full) / optax.tree.norm(full)
  assert 1e-5 < distance < 0.1  # Eight bits of precision, not twenty-four.


@every_network
def test_it_can_be_written_down(name):
  """Equal networks share programs, and runs are named by what they are."""
  network = make(name)
  assert network == make(name) and hash(network) == hash(make(name))
  assert network != make(name, image_shape=(12, 12, 3))
  written = json.loads(json.dumps(identity(network)))
  if type(network.module).__module__.startswith("mnemonics_jax."):
    assert restore(written) == network
