"""Scale/shift transfer as pure tree functions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax import methods, phase
from mnemonics_jax.nn import networks, transfer
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase import sgd
from mnemonics_jax.types import Batch

MODEL = Model(networks.resnet8(width=4, image_shape=(8, 8, 3)), CosineHead(), 5)
IMAGES = jax.random.uniform(jax.random.key(1), (8, 8, 8, 3))


@pytest.fixture(scope="module")
def variables():
  return MODEL.init(jax.random.key(0))


def _with_transfer(variables, kind, moved):
  t = transfer.init(variables["params"]["backbone"], kind)
  if moved:
    leaves, tree = jax.tree.flatten(t)
    keys = jax.random.split(jax.random.key(2), len(leaves))
    leaves = [
      leaf + 0.3 * jax.random.normal(key, leaf.shape)
      for leaf, key in zip(leaves, keys, strict=True)
    ]
    t = jax.tree.unflatten(tree, leaves)
  return transfer.apply(variables, t)


def _logits(variables, train=False):
  return MODEL.apply(variables, IMAGES, train)[0].logits


@pytest.mark.parametrize("kind", ["in_out", "out"])
def test_identity_changes_nothing(variables, kind):
  same = _with_transfer(variables, kind, moved=False)
  np.testing.assert_array_equal(_logits(same), _logits(variables))


@pytest.mark.parametrize("kind", ["in_out", "out"])
def test_fold_is_the_same_function(variables, kind):
  scaled = _with_transfer(variables, kind, moved=True)
  folded = transfer.fold(scaled)
  assert "transfer" not in folded
  assert jax.tree.structure(folded) == jax.tree.structure(variables)
  assert np.abs(_logits(scaled) - _logits(variables)).max() > 0.1
  np.testing.assert_allclose(_logits(folded), _logits(scaled), atol=2e-4)
  again = transfer.apply(
    folded, transfer.init(folded["params"]["backbone"], kind)
  )
  np.testing.assert_array_equal(_logits(again), _logits(folded))


def test_fold_without_transfer_is_the_identity(variables):
  assert transfer.fold(variables) is variables


def test_sizes_of_resnet32():
  net = networks.resnet32()
  params = jax.eval_shape(net.init, jax.random.key(0))["params"]
  for kind, scales in (("in_out", 53_808), ("out", 1_232)):
    t = jax.eval_shape(lambda p, k=kind: transfer.init(p, k), params)
    sizes = {"scale": 0, "shift": 0}
    for path, leaf in jax.tree_util.tree_flatten_with_path(t)[0]:
      sizes[path[-1].key] += leaf.size
    assert sizes == {"scale": scales, "shift": 1_232}


def test_out_scales_before_train_mode_normalisation_do_nothing(variables):
  """The formula's letter: batch normalisation removes what `out` adds."""
  plain = _logits(variables, train=True)
  out = _logits(_with_transfer(variables, "out", moved=True), train=True)
  # Equal up to ε = 1e-5 beside the variance (signs of scales stay positive).
  np.testing.assert_allclose(out, plain, atol=0.05)
  in_out = _logits(_with_transfer(variables, "in_out", moved=True), train=True)
  assert np.abs(in_out - plain).max() > 0.5


@pytest.mark.parametrize("kind", ["in_out", "out"])
def test_a_training_step_with_out_has_no_kernel_gradient(variables, kind):
  seen = jnp.ones(MODEL.classes, bool)
  task = sgd.Task(
    methods.Classes(~seen, seen),
    seen,
    teacher=None,
    model=MODEL,
    method=methods.LUCIR(),
    schedule=phase.Schedule(epochs=1, batch_size=8),
    scope="transfer",
  )
  identity = transfer.init(variables["params"]["backbone"], kind)
  state = sgd.init_training(task, transfer.apply(variables, identity))
  batch = Batch(IMAGES, jnp.zeros(len(IMAGES), jnp.int32))
  program = jax.make_jaxpr(functools.partial(sgd.train_step, task=task))
  assert ("conv2d_dw" in str(program(state, batch))) == (kind == "in_out")
