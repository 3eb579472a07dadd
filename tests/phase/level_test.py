"""The functions that `bilevel` unrolls: equal descriptions, one program."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import compilations

from mnemonics_jax import bilevel, memory, methods, networks
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.nn.augment import CropFlip, NoAugmentation
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.pixels import JpegLoss
from mnemonics_jax.phase.level import Level

IMAGES = jnp.linspace(0, 1, 6 * 8 * 8 * 3).reshape(6, 8, 8, 3)


def _model(method):
  network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  return Model(network, method.head, 3)


def _level(method=methods.BiC(), augment=NoAugmentation(), **recipe):
  recipe = BilevelConfig(epochs=1, steps_per_epoch=1, inner_steps=1, **recipe)
  return Level.of(recipe, _model(method), method, augment)


def test_equal_descriptions_are_equal_and_hash_equal():
  one, two = _level(), _level(methods.BiC())
  assert one == two and hash(one) == hash(two)
  for other in (_level(methods.LwF()), _level(augment=CropFlip()),
                _level(inner_lr=0.5)):  # fmt: skip
    assert other != one


def test_exemplars_are_learned_through_what_keeps_them():
  method = methods.LwF()
  stored_fn = lambda codec: (
    Level.of(
      BilevelConfig(), _model(method), method, NoAugmentation(), codec
    ).config.stored_fn
  )
  assert stored_fn(memory.Raw()) is None
  assert stored_fn(memory.Jpeg(30)) == JpegLoss(30)


@pytest.mark.parametrize("scope", ["head", "all"])
def test_equal_descriptions_run_the_same_program(scope):
  exemplars = bilevel.Exemplars(IMAGES, jnp.arange(6) % 3)
  data = IMAGES[::-1], jnp.arange(6) % 3
  variables = _model(methods.LwF()).init(jax.random.key(0))
  learn = lambda: bilevel.optimize_exemplars(
    jax.random.key(0), exemplars, variables, data,
    **_level(methods.LwF(), scope=scope)._asdict(),
  )  # fmt: skip
  learn()
  with compilations.counted() as count:
    learn()
  assert count.programs == 0


def test_logits_are_those_of_the_method():
  """BiC corrects the logits of new classes; exemplars learn through that."""
  method = methods.BiC()
  model, level = _model(method), _level(method)
  variables = method.begin_run(model.init(jax.random.key(0)))
  outputs, _ = model.apply(variables, IMAGES)
  expected = method.logits(variables, outputs)
  np.testing.assert_allclose(
    level.apply_fn(variables, IMAGES), expected, rtol=1e-5
  )
  features = level.config.features_fn(variables, IMAGES)
  np.testing.assert_allclose(features, outputs.features, rtol=1e-5)


def test_the_inner_head_is_a_cosine_head_whose_scale_stays():
  head = {"weight": jnp.array([[3.0, 4.0], [0.0, 2.0]])}
  features = jnp.array([[6.0, 8.0]])
  logits = _level().config.head_fn
  # cos((6, 8), (3, 4)) = 1 and cos((6, 8), (0, 2)) = 0.8, times σ.
  np.testing.assert_allclose(logits(head, features), [[10.0, 8.0]], rtol=1e-5)
  scaled = head | {"sigma": jnp.float32(2.0)}
  np.testing.assert_allclose(logits(scaled, features), [[2.0, 1.6]], rtol=1e-5)
  slope = jax.grad(lambda h: logits(h, features).sum())(scaled)
  assert slope["sigma"] == 0 and np.abs(slope["weight"]).max() > 0


def test_the_base_level_of_transfer_starts_at_the_identity():
  model, level = _model(methods.LwF()), _level(methods.LwF(), scope="transfer")
  variables = model.init(jax.random.key(0))
  start = level.start(variables)
  assert set(start) - set(variables) == {"transfer"}
  np.testing.assert_allclose(
    level.apply_fn(start, IMAGES), level.apply_fn(variables, IMAGES), rtol=1e-5
  )
  assert _level(scope="head").start(variables) is variables
