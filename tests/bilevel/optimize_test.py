"""Learning exemplars: limits of a change, forms of data, continuing."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import compilations
from support.mlp_model import (
  KEY,
  ON_FEATURES,
  TINY,
  assert_equal,
  change,
  draw,
  features_fn,
  init,
)

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import Exemplars, Features


def brighten(key, images):
  return images * jax.random.uniform(key, (len(images), 1, 1, 1), minval=0.8)


def test_divergence_is_an_error_not_a_black_image():
  exemplars, variables, data = draw()
  config = change(TINY, inner_optimizer=optax.sgd(float("inf")))
  with pytest.raises(FloatingPointError, match="diverged in epoch 0"):
    bilevel.optimize_exemplars(KEY, exemplars, variables, data, config=config)


def test_continuing_a_saved_state_is_bitwise_the_same():
  exemplars, variables, data = draw()
  config = change(TINY, augment=brighten, inner_batch_size=2, batch_size=8)
  states = []
  whole = bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, config=config,
    callback=lambda epoch, state, metrics: states.append(state),
  )  # fmt: skip
  assert [int(state.step) for state in states] == [2, 4, 6]
  raw = jax.random.key_data(states[0].key)
  loaded = jax.tree.map(np.asarray, states[0]._replace(key=raw))
  loaded = loaded._replace(key=jax.random.wrap_key_data(loaded.key))
  rest = bilevel.optimize_exemplars(
    jax.random.key(99), exemplars, variables, data, config=config, state=loaded
  )
  assert_equal(rest.exemplars, whole.exemplars)
  assert_equal(rest.history, jax.tree.map(lambda x: x[1:], whole.history))
  # The middle of the run differs from its end, so equality says something.
  assert not np.array_equal(states[0].images, whole.exemplars.images)


@pytest.mark.parametrize("reach", [0, 2, None])
def test_trust_region_and_pixel_box_hold_after_every_step(reach):
  exemplars, variables, data = draw()
  corners = exemplars.images.at[0].set(0.0).at[1].set(1.0)
  exemplars = exemplars._replace(images=corners)
  config = change(TINY, epochs=6, steps_per_epoch=1, max_change=reach)
  config = change(config, outer_lr=0.05, outer_schedule="constant")
  before = np.asarray(bilevel.to_uint8(corners)).astype(int)
  seen = []

  def look(epoch, state, metrics):
    images = np.asarray(state.images, np.float64)
    assert images.min() >= 0 and images.max() <= 1
    after = np.asarray(bilevel.to_uint8(state.images)).astype(int)
    limit = 255 if reach is None else reach
    assert np.abs(after - before).max() <= limit
    # One unit in the last place of a float32 near 1.
    assert np.abs(images - corners).max() <= limit / 255 + 6e-8
    seen.append(metrics)

  result = bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, config=config, callback=look
  )
  moved = np.abs(np.asarray(result.exemplars.images - corners)) * 255
  np.testing.assert_allclose(
    seen[-1]["displacement"], moved.mean(), rtol=1e-4, atol=1e-6
  )
  if reach == 0:
    assert_equal(result.exemplars.images, corners)
  if reach == 2:
    # Adam's first step is 13 grey levels: every pixel with a gradient is cut.
    assert seen[0]["clipped"] > 0.9


def test_history_distances_are_those_of_the_features():
  exemplars, variables, data = draw()
  mask = jnp.array([True] * 5 + [False])
  exemplars = exemplars._replace(mask=mask)
  result = bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, config=TINY
  )
  start, end = (
    np.asarray(features_fn(variables, e.images[:5]), np.float64)
    for e in (exemplars, result.exemplars)
  )
  euclidean = np.linalg.norm(end - start, axis=1).mean()
  norms = np.linalg.norm(end, axis=1) * np.linalg.norm(start, axis=1)
  cosine = (1 - (end * start).sum(1) / norms).mean()
  history = result.history
  np.testing.assert_allclose(history.euclidean[-1], euclidean, rtol=1e-4)
  np.testing.assert_allclose(history.cosine[-1], cosine, atol=1e-6)
  assert {len(column) for column in history} == {3}
  assert_equal(result.exemplars.images[5], exemplars.images[5])


def test_a_second_call_compiles_nothing():
  exemplars, variables, data = draw()
  bilevel.optimize_exemplars(KEY, exemplars, variables, data, config=TINY)
  exemplars, variables, data = draw(seed=1)
  again = change(ON_FEATURES, epochs=3, steps_per_epoch=2, inner_steps=2)
  with compilations.counted() as count:
    bilevel.optimize_exemplars(
      jax.random.key(8), exemplars, variables, data, config=again
    )
  assert count.programs == 0


def test_forms_of_data_agree():
  exemplars, variables, (images, labels) = draw()
  config = change(TINY, batch_size=40)
  run = lambda data: (
    bilevel.optimize_exemplars(
      KEY, exemplars, variables, data, config=config
    ).exemplars.images
  )
  expected = run((images, labels))
  floats = bilevel.from_uint8(images)
  padded = Exemplars(
    jnp.concatenate([floats, jnp.ones((3, 2, 2, 1))]),
    jnp.concatenate([labels, jnp.zeros(3, int)]),
    jnp.arange(43) < 40,
  )
  features = Features(features_fn(variables, floats), labels)
  stream = itertools.repeat((np.asarray(images), np.asarray(labels)))
  for form in (padded, features, stream):
    # A different order of summation, after six steps of Adam.
    np.testing.assert_allclose(run(form), expected, rtol=0, atol=1e-4)
  with pytest.raises(ValueError, match="1 short of an epoch"):
    run(iter([(images, labels)] * 5))


def test_starts_are_drawn_per_meta_step():
  exemplars, variables, data = draw()
  other = init(jax.random.key(5), pixels=4, hidden=5, dim=4, classes=3)
  twice = lambda a, b: jax.tree.map(lambda *x: jnp.stack(x), a, b)
  run = lambda starts: bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, config=change(TINY, batch_size=40),
    starts=starts,
  )  # fmt: skip
  same, mixed = run(twice(variables, variables)), run(twice(variables, other))
  alone = run(None)
  np.testing.assert_allclose(
    same.exemplars.images, alone.exemplars.images, rtol=0, atol=1e-4
  )
  assert np.abs(mixed.exemplars.images - alone.exemplars.images).max() > 1e-3
  with pytest.raises(ValueError, match="one more axis"):
    run(variables)


def test_outer_optimizer_and_schedule():
  exemplars, variables, data = draw()
  free = change(TINY, max_change=None, epochs=5, steps_per_epoch=1)
  config = change(free, outer_optimizer="sgd", outer_schedule="halving")
  config = change(config, outer_lr=0.5, batch_size=40)
  states = [exemplars.images]
  bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, config=config,
    callback=lambda e, state, m: states.append(state.images),
  )  # fmt: skip
  run = jax.jit(functools.partial(bilevel.hypergradient, config=config))
  for t in range(5):
    moved = exemplars._replace(images=states[t])
    _, grads = run(moved, variables, data)
    expected = jnp.clip(states[t] - 0.5 * 0.5**t * grads, 0, 1)
    np.testing.assert_allclose(states[t + 1], expected, atol=2e-6)
  signs = []
  bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, config=free, outer_tx=optax.sign_sgd(1e-3),
    callback=lambda e, state, m: signs.append(state.images),
  )  # fmt: skip
  step = np.abs(np.asarray(signs[0] - exemplars.images))
  assert np.allclose(step[(step > 0)], 1e-3, atol=1e-6) and (step > 0).any()
