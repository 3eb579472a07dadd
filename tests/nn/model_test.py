"""Models: network and head together, also with a network of one's own."""

from flax import linen
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.nn import heads, networks, transfer
from mnemonics_jax.nn.heads import CosineHead, LinearHead
from mnemonics_jax.nn.model import Model, map_blocks, stream_blocks

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


# Images in blocks give what they give all at once.


@pytest.mark.parametrize("rows", [1, 255, 256, 257])
def test_rows_on_the_device_come_back_in_order(rows):
  images = jnp.arange(2.0 * rows).reshape(rows, 2)
  out = map_blocks(lambda block: block.sum(-1), images)
  np.testing.assert_array_equal(out, np.arange(rows) * 4 + 1)


@pytest.mark.parametrize("rows", [0, 1, 256, 300])
def test_rows_on_the_host_come_back_in_order(rows):
  images = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)
  same, sums = stream_blocks(lambda x: (x, x.sum(-1)), images)
  np.testing.assert_array_equal(same, images)
  np.testing.assert_array_equal(sums, np.arange(rows) * 4 + 1)


def test_any_number_of_rows_on_the_host_is_one_program():
  traced = []

  @jax.jit
  def apply(block):
    traced.append(block.shape)
    return (block,)

  for rows in (1, 100, 256, 600):
    stream_blocks(apply, np.zeros((rows, 2), np.float32))
  assert traced == [(256, 2)]


# Heads.


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
