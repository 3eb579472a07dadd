"""The meta level as three functions of a state: init, steps, measure."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.mlp_model import (
  KEY,
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
from mnemonics_jax.bilevel.meta_level import initial_features

RANDOM = change(
  TINY,
  steps_per_epoch=5,
  inner_batch_size=2,
  batch_size=8,
  augment=lambda key, x: x * jax.random.uniform(key, (len(x), 1, 1, 1)),
)


def _begin(config=RANDOM, **options):
  exemplars, variables, data = draw()
  problem = bilevel.prepare(
    exemplars, variables, data, config=config, **options
  )
  return problem, bilevel.init(KEY, exemplars, config)


def test_the_first_state_is_the_exemplars_themselves():
  problem, state = _begin()
  assert state.step == 0 and state.key == KEY
  assert_equal(state.images, problem.exemplars.images)
  assert_equal(state.initial, problem.exemplars.images)
  assert all(total == 0 for total in state.sums.values())
  assert (problem.steps, problem.total_steps) == (5, 15)


def test_steps_never_pass_the_end_of_an_epoch():
  problem, state = _begin()
  reached = []
  for count in (3, 3, 99, 1, 4):
    state = bilevel.steps(problem, state, count)
    reached.append(int(state.step))
  assert reached == [3, 5, 10, 11, 15]


def test_steps_are_the_same_however_they_are_cut():
  """One at a time, all at once, and through a file."""
  problem, begin = _begin()
  whole = single = begin
  for _ in range(problem.config.epochs):
    whole = bilevel.steps(problem, whole, 5)
  while single.step < problem.total_steps:
    raw = single._replace(key=jax.random.key_data(single.key))
    loaded = jax.tree.map(np.asarray, raw)
    loaded = loaded._replace(key=jax.random.wrap_key_data(loaded.key))
    single = bilevel.steps(problem, loaded, 1)
  assert whole.key == single.key
  assert_equal(whole._replace(key=None), single._replace(key=None))
  assert np.abs(whole.images - begin.images).max() > 0


def test_steps_leave_their_state_alone():
  problem, begin = _begin()
  before = jax.tree.map(np.array, begin._replace(key=None))
  one, two = (bilevel.steps(problem, begin, 2) for _ in range(2))
  assert_equal(before, begin._replace(key=None))
  assert_equal(one._replace(key=None), two._replace(key=None))


def test_rows_that_are_masked_out_stay_as_they_are():
  exemplars, variables, data = draw()
  wild = bilevel.Exemplars(
    exemplars.images.at[-1].set(99.0),
    exemplars.labels,
    jnp.arange(len(exemplars.labels)) < len(exemplars.labels) - 1,
  )
  problem = bilevel.prepare(wild, variables, data, config=TINY)
  state = bilevel.steps(problem, bilevel.init(KEY, wild, TINY), 2)
  assert_equal(state.images[-1], wild.images[-1])
  assert (state.images[:-1] != wild.images[:-1]).any((1, 2, 3)).all()


def test_a_step_is_adam_on_the_hypergradient():
  """Without limits: images − β · g / (|g| + ε) after bias correction."""
  config = change(TINY, max_change=None, outer_schedule="constant")
  problem, begin = _begin(config)
  exemplars, variables, (images, labels) = draw()
  _, grads = jax.jit(
    lambda e, v, x, y: bilevel.hypergradient(e, v, (x, y), config=config)
  )(exemplars, variables, images, labels)
  after = bilevel.steps(problem, begin, 1).images
  expected = begin.images - 0.003 * grads / (jnp.abs(grads) + 1e-8)
  np.testing.assert_allclose(after, jnp.clip(expected, 0, 1), atol=1e-5)


@pytest.mark.parametrize(
  "schedule, parts",
  {
    "constant": [1, 1, 1, 1, 1],
    "halving": [1, 1 / 2, 1 / 4, 1 / 8, 1 / 16],  # After every fifth.
    # (1 + cos(π t / 5)) / 2
    "cosine": [1, 0.904508, 0.654508, 0.345492, 0.095492],
  }.items(),
)
@pytest.mark.parametrize("steps_per_epoch", [1, None])
def test_the_rate_of_a_step_follows_the_schedule(
  schedule, parts, steps_per_epoch
):
  """Five epochs of one step, which is fixed or a pass over the data."""
  config = change(
    TINY, max_change=None, outer_schedule=schedule, outer_optimizer="sgd",
    epochs=5, steps_per_epoch=steps_per_epoch, batch_size=40, outer_lr=1e-2,
  )  # fmt: skip
  problem, state = _begin(config)
  exemplars, variables, data = draw()
  gradient = jax.jit(
    lambda images: bilevel.hypergradient(
      exemplars._replace(images=images), variables, data, config=config
    )[1]
  )
  for part in parts:
    moved = state.images - 1e-2 * part * gradient(state.images)
    state = bilevel.steps(problem, state, 1)
    np.testing.assert_allclose(
      state.images, np.clip(moved, 0, 1), rtol=0, atol=2e-6
    )


def test_every_epoch_visits_all_data_in_an_order_of_its_own():
  """Exemplars that stand still: a step's loss tells which batch it had."""
  config = change(
    TINY, outer_lr=0.0, batch_size=8, steps_per_epoch=None, epochs=2
  )
  problem, state = _begin(config)
  losses = []
  for _ in range(problem.total_steps):
    before = float(state.sums["loss"]) if state.step % problem.steps else 0.0
    state = bilevel.steps(problem, state, 1)
    losses.append(float(state.sums["loss"]) - before)
  first, second = np.split(np.array(losses), 2)
  assert len(first) == 5  # 40 samples.
  assert first.mean() == pytest.approx(second.mean(), rel=1e-4)
  assert np.abs(np.sort(first) - np.sort(second)).max() > 1e-3


@pytest.mark.parametrize("config", [RANDOM, change(RANDOM, scope="all")])
def test_measuring_gives_the_history_of_optimize_exemplars(config):
  exemplars, variables, data = draw()
  model = dict(apply_fn=apply_fn, config=config)
  result = bilevel.optimize_exemplars(KEY, exemplars, variables, data, **model)
  problem, state = _begin(config, apply_fn=apply_fn)
  rows = []
  while state.step < problem.total_steps:
    state = bilevel.steps(problem, state, 2)
    if state.step % problem.steps == 0:
      rows.append(bilevel.measure(problem, state))
  assert_equal(bilevel.History.of(rows), result.history)
  assert_equal(state.images, result.exemplars.images)


def test_measuring_changes_nothing_and_may_be_given_its_reference():
  problem, state = _begin()
  reference = initial_features(problem, state)
  state = bilevel.steps(problem, state, 5)
  one = bilevel.measure(problem, state)
  assert one == bilevel.measure(problem, state, reference)
  moved = np.asarray(state.images - state.initial)
  assert one["displacement"] == pytest.approx(255 * np.abs(moved).mean(), 1e-4)
  assert one["loss"] == pytest.approx(float(state.sums["loss"]) / 5)


def test_measured_losses_belong_to_one_epoch():
  """Sums begin anew with each."""
  problem, state = _begin()
  state = bilevel.steps(problem, state, 5)
  first = float(state.sums["loss"])
  state = bilevel.steps(problem, state, 1)
  assert 0 < float(state.sums["loss"]) < 0.9 * first


def test_divergence_names_epoch_steps_and_loss():
  problem, state = _begin(TINY)
  state = state._replace(images=state.images * np.nan)
  with pytest.raises(FloatingPointError, match=r"epoch 0, steps 0 to 2 \(meta"):
    bilevel.steps(problem, state, 99)


def test_exemplars_are_learned_through_what_storing_leaves_of_them():
  """A pixel x of which x/2 is left: the loss log(1 + e^(−x/2)) at x = 1."""
  white = bilevel.Exemplars(jnp.ones((1, 1, 1, 1)), jnp.array([0]))
  variables = {"params": {"w": jnp.zeros((1, 2))}}
  logits = lambda variables, x: x[:, 0, 0] @ variables["params"]["w"]
  config = bilevel.BilevelConfig(
    inner_steps=1, inner_lr=1.0, stored_fn=lambda x: x / 2
  )
  loss, gradient = bilevel.hypergradient(
    white, variables, white, apply_fn=logits, config=config
  )
  np.testing.assert_allclose(loss, np.log(1 + np.exp(-0.5)), rtol=1e-5)
  np.testing.assert_allclose(
    gradient.item(), -0.5 / (1 + np.exp(0.5)), rtol=1e-5
  )
  # What is evaluated has been stored already.
  problem = bilevel.prepare(
    white, variables, white, apply_fn=logits, config=config
  )
  found = bilevel.evaluate(problem, KEY, 0.5 * white.images)
  np.testing.assert_allclose(found, loss, rtol=1e-5)


def test_an_evaluation_is_the_mean_loss_of_an_epoch():
  problem, state = _begin()
  images = problem.exemplars.images
  first = bilevel.evaluate(problem, KEY, images)
  assert first == bilevel.evaluate(problem, KEY, images)
  assert first != bilevel.evaluate(problem, jax.random.key(9), images)
  plain = change(RANDOM, augment=None, inner_batch_size=None, batch_size=None)
  problem, state = _begin(plain)  # Every batch is all of the data.
  once = bilevel.measure(problem, bilevel.steps(problem, state, 1))
  loss = bilevel.evaluate(problem, KEY, problem.exemplars.images)
  np.testing.assert_allclose(loss, 5 * once["loss"], rtol=1e-5)


def test_changes_of_low_frequencies_only():
  """Brightness of a block alone: all its pixels move by the same."""
  rng = np.random.default_rng(0)
  images = rng.uniform(0.3, 0.7, (2, 8, 16, 1)).astype(np.float32)
  exemplars = bilevel.Exemplars(jnp.asarray(images), jnp.arange(2))
  variables = {"params": {"w": jnp.asarray(rng.normal(size=(128, 2)) / 9)}}
  logits = lambda v, x: x.reshape(len(x), -1) @ v["params"]["w"]
  moved = {}
  for frequencies in (1, None):
    config = bilevel.BilevelConfig(
      epochs=1, steps_per_epoch=3, inner_steps=1, max_change=None,
      frequencies=frequencies,
    )  # fmt: skip
    result = bilevel.optimize_exemplars(
      KEY, exemplars, variables, exemplars, apply_fn=logits, config=config
    )
    change = np.asarray(result.exemplars.images) - images
    moved[frequencies] = change.reshape(2, 8, 2, 8)
  flat = moved[1].mean((1, 3), keepdims=True)
  assert np.abs(flat).max() > 1e-4
  np.testing.assert_allclose(moved[1] - flat, 0, atol=1e-6)
  assert np.ptp(moved[None], axis=(1, 3)).min() > 1e-3


# What is learned, prepared once: where data pass, and how long an epoch is.


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
