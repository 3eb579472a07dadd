"""Models: network and head together, also with a network of one's own."""

from flax import linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax import methods, phase
from mnemonics_jax.nn import networks, transfer
from mnemonics_jax.nn.heads import CosineHead, LinearHead
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase import sgd
from mnemonics_jax.types import Batch

SHAPE = (8, 8, 3)
IMAGES = jax.random.uniform(jax.random.key(1), (4, *SHAPE))


class Own(linen.Module):
  """A network without batch statistics: linear in the mean colour."""

  features: int = 5

  @linen.compact
  def __call__(self, images, train):
    return linen.Dense(self.features, name="out")(images.mean((1, 2)))


class Grid(linen.Module):
  """Not pooled: its features still have rows and columns."""

  @linen.compact
  def __call__(self, images, train):
    return linen.Conv(2, (3, 3))(images)


def test_outputs_are_the_heads_scores_of_the_networks_features():
  network = networks.resnet8(width=4, image_shape=SHAPE)
  model = Model(network, CosineHead(), classes=6)
  variables = model.init(jax.random.key(0))
  assert sorted(variables) == ["batch_stats", "params"]
  assert sorted(variables["params"]) == ["backbone", "head"]
  outputs, stats = model.apply(variables, IMAGES)
  assert outputs.features.shape == (4, network.feature_dim)
  weight = variables["params"]["head"]["weight"]
  unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)
  cosines = unit(outputs.features) @ unit(weight).T
  np.testing.assert_allclose(outputs.cosines, cosines, atol=1e-5)
  np.testing.assert_allclose(outputs.logits, 10 * cosines, atol=1e-4)
  assert stats is variables["batch_stats"]
  _, moved = model.apply(variables, IMAGES, train=True)
  assert jax.tree.structure(moved) == jax.tree.structure(stats)
  differ = jax.tree.map(lambda a, b: bool((a != b).any()), moved, stats)
  assert all(jax.tree.leaves(differ))


def test_a_network_of_ones_own_by_hand():
  model = Model(networks.Network(Own(), SHAPE), LinearHead(), classes=3)
  variables = model.init(jax.random.key(0))
  head = variables["params"]["head"]
  assert head["weight"].shape == (3, 5)
  dense = variables["params"]["backbone"]["out"]
  features = np.asarray(IMAGES).mean((1, 2)) @ dense["kernel"] + dense["bias"]
  for train in (False, True):
    outputs, stats = model.apply(variables, IMAGES, train)
    assert jax.tree.leaves(stats) == []
    np.testing.assert_allclose(outputs.features, features, rtol=1e-5)
    np.testing.assert_allclose(
      outputs.logits, features @ head["weight"].T, rtol=1e-4, atol=1e-6
    )


def test_a_network_without_statistics_says_that_there_are_none():
  network = networks.Network(Own(), SHAPE)
  variables = network.init(jax.random.key(0))
  assert sorted(variables) == ["params"]
  for train in (False, True):
    features, stats = network.features(variables, IMAGES, train)
    assert features.shape == (4, 5) and stats == {}


def test_a_network_of_ones_own_is_trained():
  model = Model(networks.Network(Own(), SHAPE), LinearHead(), classes=2)
  seen = jnp.ones(2, bool)
  task = sgd.Task(
    methods.Classes(~seen, seen),
    seen,
    teacher=None,
    model=model,
    method=methods.LwF(),
    schedule=phase.Schedule(learning_rate=1.0),
  )
  state = sgd.init_training(task, model.init(jax.random.key(0)))
  # Dark and bright images.
  batch = Batch(IMAGES.at[:2].multiply(0.1), jnp.array([0, 0, 1, 1]))
  step = jax.jit(sgd.train_step)
  losses = []
  for _ in range(20):
    state, metrics = step(state, batch, task=task)
    losses.append(float(metrics["loss"]))
  assert losses[-1] < 0.1 * losses[0]


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
def test_the_feature_dimension_is_that_of_the_features(name):
  network = networks.NETWORKS[name](width=2, image_shape=(32, 32, 3))
  variables = jax.eval_shape(network.init, jax.random.key(0))
  images = jax.ShapeDtypeStruct((3, 32, 32, 3), jnp.float32)
  features, _ = jax.eval_shape(network.features, variables, images)
  assert features.shape == (3, network.feature_dim)


def test_features_that_are_no_vectors_are_refused():
  with pytest.raises(ValueError, match="pool or reshape"):
    Model(networks.Network(Grid(), SHAPE), LinearHead(), 3).init(
      jax.random.key(0)
    )


def test_images_of_another_shape_are_refused():
  network = networks.resnet8(width=4, image_shape=SHAPE)
  variables = network.init(jax.random.key(0))
  with pytest.raises(AssertionError, match=r"\(2, 9, 9, 3\)"):
    network.features(variables, jnp.zeros((2, 9, 9, 3)))


def test_transfer_refuses_kernels_that_are_not_convolutions():
  network = networks.Network(Own(), SHAPE)
  params = network.init(jax.random.key(0))["params"]
  with pytest.raises(AssertionError, match="rank"):
    transfer.init(params, "in_out")
