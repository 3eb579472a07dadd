"""Learning exemplars: limits of a change, forms of data, continuing."""

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


def test_a_callers_outer_optimiser_replaces_the_built_in_one():
  exemplars, variables, data = draw()
  free = change(TINY, max_change=None, epochs=1, steps_per_epoch=1)
  moved = bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, config=free, outer_tx=optax.sign_sgd(1e-3)
  )
  step = np.abs(np.asarray(moved.exemplars.images - exemplars.images))
  assert np.allclose(step[step > 0], 1e-3, atol=1e-6) and (step > 0).any()


# Old exemplars adjusted with each other.


def test_adjusting_moves_one_half_at_a_time():
  exemplars, variables, _ = draw(n=13)
  exemplars = exemplars._replace(mask=jnp.arange(13) != 12)
  snapshots = []
  result = bilevel.adjust_exemplars(
    KEY, exemplars, variables, config=TINY,
    callback=lambda epoch, states, metrics: snapshots.append((epoch, states)),
  )  # fmt: skip
  assert [epoch for epoch, _ in snapshots] == list(range(6))
  # Stored as 0 1 2 0 1 2 0 1 2 0 1 2: the first and third of a class are A.
  half_a = np.array([0, 6, 1, 7, 2, 8])
  half_b = np.array([3, 9, 4, 10, 5, 11])
  first = snapshots[2][1]
  assert first[1].step == 0
  np.testing.assert_array_equal(
    first[1].images[:6], exemplars.images[half_b],
    err_msg="B has not been touched while A moved",
  )  # fmt: skip
  last = result.state
  # A stands still while B moves.
  assert_equal(first[0]._replace(key=None), last[0]._replace(key=None))
  images = result.exemplars.images
  assert_equal(images[half_a], last[0].images[:6])
  assert_equal(images[half_b], last[1].images[:6])
  assert_equal(last[1].initial[:6], exemplars.images[half_b])
  assert not np.array_equal(images[half_a], exemplars.images[half_a])
  assert not np.array_equal(images[half_b], exemplars.images[half_b])
  assert_equal(images[12], exemplars.images[12])
  assert_equal(result.exemplars.labels, exemplars.labels)
  assert_equal(result.exemplars.mask, exemplars.mask)
  # A is validated by B alone: its run equals one with B as the data.
  alone = bilevel.optimize_exemplars(
    jax.random.fold_in(KEY, 0),
    Exemplars(exemplars.images[half_a], exemplars.labels[half_a]),
    variables,
    (exemplars.images[half_b], exemplars.labels[half_b]),
    config=TINY,
  )
  np.testing.assert_allclose(
    alone.exemplars.images, images[half_a], rtol=0, atol=1e-5
  )


def test_adjusting_continues_in_the_middle_and_takes_more_parts():
  exemplars, variables, _ = draw(n=9)
  snapshots = []
  adjust = lambda **kwargs: bilevel.adjust_exemplars(
    KEY, exemplars, variables, config=TINY, parts=3, **kwargs
  )
  whole = adjust(callback=lambda e, states, m: snapshots.append(states))
  assert len(whole.state) == 3 and len(whole.history.loss) == 9
  rest = adjust(state=snapshots[4])
  assert_equal(rest.exemplars, whole.exemplars)
  assert len(rest.history.loss) == 4
  with pytest.raises(ValueError, match="parts=1"):
    bilevel.adjust_exemplars(KEY, exemplars, variables, config=TINY, parts=1)


def test_moments_are_told_of_all_parts_and_any_can_be_continued():
  """From every moment, one after the other."""
  exemplars, variables, _ = draw(n=9)
  begin = bilevel.init_parts(KEY, exemplars, TINY, 3)
  assert len(begin) == 3 and {int(state.step) for state in begin} == {0}
  assert len({tuple(jax.random.key_data(s.key).tolist()) for s in begin}) == 3
  assert_equal(bilevel.merge_parts(exemplars, begin), exemplars)
  go_on = lambda states: bilevel.run_parts(
    exemplars, variables, states, config=TINY
  )
  whole = list(go_on(begin))
  assert [m.epoch for m in whole if m.row is not None] == list(range(9))
  pieces, states = [], begin
  while (moment := next(go_on(states), None)) is not None:
    pieces.append(moment)
    states = moment.state
  rows = lambda moments: [m.row for m in moments if m.row is not None]
  assert rows(pieces) == rows(whole)
  assert_equal(
    bilevel.merge_parts(exemplars, states),
    bilevel.merge_parts(exemplars, whole[-1].state),
  )


def test_each_part_sees_what_the_parts_before_it_have_become():
  """B is validated by the A that has moved."""
  exemplars, variables, _ = draw(n=12)
  free = change(TINY, max_change=None, outer_lr=0.02)
  result = bilevel.adjust_exemplars(KEY, exemplars, variables, config=free)
  half_a, half_b = np.array([0, 6, 1, 7, 2, 8]), np.array([3, 9, 4, 10, 5, 11])
  rows = lambda images, half: (images[half], exemplars.labels[half])
  run = lambda validation: (
    bilevel.optimize_exemplars(
      jax.random.fold_in(KEY, 1),
      Exemplars(*rows(exemplars.images, half_b)),
      variables,
      rows(validation, half_a),
      config=free,
    ).exemplars.images
  )
  moved, still = run(result.exemplars.images), run(exemplars.images)
  actual = result.exemplars.images[half_b]
  np.testing.assert_allclose(actual, moved, rtol=0, atol=1e-6)
  assert np.abs(actual - still).max() > 1e-6
