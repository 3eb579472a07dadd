"""What is learned, prepared once: where data pass, and how long an epoch is."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from support.mlp_model import (
  ON_FEATURES,
  TINY,
  apply_fn,
  assert_equal,
  change,
  draw,
  features_fn,
)

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import BilevelConfig, Features


def _prepare(config, **options):
  return bilevel.prepare(*draw(), config=config, **options)


def test_data_pass_the_backbone_once_if_only_the_head_trains():
  _, variables, (images, _) = draw()
  problem = _prepare(ON_FEATURES)
  assert isinstance(problem.valid, Features)
  expected = features_fn(variables, bilevel.from_uint8(images))
  np.testing.assert_allclose(problem.valid.features, expected, atol=1e-5)


def test_data_stay_images_where_features_would_not_last():
  """For a whole model, several backbones, or the first batch of many."""
  _, variables, (images, _) = draw()
  starts = jax.tree.map(lambda x: jnp.stack([x, x]), variables)
  for problem in (
    _prepare(BilevelConfig(), apply_fn=apply_fn),
    _prepare(ON_FEATURES, starts=starts),
    _prepare(ON_FEATURES, batch_per_step=True),
  ):
    assert_equal(problem.valid.images, images)


def test_an_epoch_is_a_pass_over_the_data_unless_it_has_a_length():
  config = change(TINY, steps_per_epoch=None, batch_size=16)
  assert _prepare(config).steps == 3  # 40 samples in batches of 16.
  assert _prepare(config).total_steps == 9
  assert _prepare(change(config, steps_per_epoch=7)).steps == 7
  assert _prepare(change(config, batch_size=100)).batch_size == 40
  assert _prepare(TINY, batch_per_step=True).batch_size is None


def test_arrays_are_leaves_and_everything_else_is_description():
  """So that a second problem of the same shapes runs the same program."""
  one, two = _prepare(TINY), bilevel.prepare(*draw(seed=1), config=TINY)
  assert jax.tree.structure(one) == jax.tree.structure(two)
  assert jax.tree.structure(one) != jax.tree.structure(
    _prepare(change(TINY, inner_lr=0.5))
  )
  # And the number of steps, which programs take as they take arrays.
  leaves = jax.tree.leaves(dataclasses.replace(one, steps=jnp.int32(one.steps)))
  assert all(isinstance(leaf, jax.Array) for leaf in leaves)


def test_an_epoch_is_a_pass_over_the_rows_that_are_real():
  config = change(TINY, steps_per_epoch=None, batch_size=16)
  exemplars, variables, (images, labels) = draw()
  whole, part = (
    bilevel.prepare(
      exemplars,
      variables,
      (images, labels, np.arange(40) < real),
      config=config,
    )
    for real in (40, 17)
  )
  assert (whole.steps, part.steps) == (3, 2)
  # Both run the same program.
  assert jax.tree.structure(whole) == jax.tree.structure(part)
