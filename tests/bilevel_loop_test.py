"""The meta loop: learning, adjusting, continuing, and the limits of a change."""

import dataclasses
import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn import datasets

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import BilevelConfig, Exemplars, Features

change = dataclasses.replace


def unit(x):
  return x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + 1e-12)


def features_fn(variables, images):
  backbone = variables["params"]["backbone"]
  flat = images.reshape(len(images), -1)
  return jnp.tanh(flat @ backbone["w1"] + backbone["b1"]) @ backbone["w2"]


def head_fn(head, features):
  sigma = jax.lax.stop_gradient(head["sigma"])
  return sigma * unit(features) @ unit(head["weight"]).T


def apply_fn(variables, images):
  return head_fn(variables["params"]["head"], features_fn(variables, images))


def init(key, pixels=64, hidden=32, dim=16, classes=10):
  normal = lambda n, *shape: jax.random.normal(
    jax.random.fold_in(key, n), shape
  )
  backbone = {
    "w1": normal(0, pixels, hidden) / 4,
    "b1": jnp.zeros(hidden),
    "w2": normal(1, hidden, dim) / 6,
  }
  head = {"weight": normal(2, classes, dim), "sigma": jnp.float32(8)}
  return {"params": {"backbone": backbone, "head": head}}


def cross_entropy(logits, labels):
  return -jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels].mean()


@jax.jit
def pretrain(key, images, labels):
  """A few steps of Adam: features better than random, far from perfect."""
  tx = optax.adam(0.01)
  variables = init(key)

  def step(_, carry):
    variables, opt_state = carry
    grads = jax.grad(lambda v: cross_entropy(apply_fn(v, images), labels))
    updates, opt_state = tx.update(grads(variables), opt_state)
    return optax.apply_updates(variables, updates), opt_state

  return jax.lax.fori_loop(0, 12, step, (variables, tx.init(variables)))[0]


def herding(features, n):
  """Greedy choice whose mean follows the class mean."""
  features = features / np.linalg.norm(features, axis=1, keepdims=True)
  mean = features.mean(0)
  want, chosen = mean.copy(), []
  for _ in range(n):
    score = features @ want
    score[chosen] = -np.inf
    chosen.append(int(score.argmax()))
    want += mean - features[chosen[-1]]
  return chosen


@jax.jit
def head_accuracy(variables, exemplars, images, labels):
  """Of a head trained from scratch on the exemplars alone."""
  features = features_fn(variables, exemplars.images)
  head = variables["params"]["head"]
  logits = lambda weight, f: head_fn({**head, "weight": weight}, f)
  loss = lambda w: cross_entropy(logits(w, features), exemplars.labels)
  step = lambda _, w: unit(w - 0.3 * jax.grad(loss)(w))
  start = unit(jax.random.normal(jax.random.key(0), head["weight"].shape))
  weight = jax.lax.fori_loop(0, 200, step, start)
  predicted = logits(weight, features_fn(variables, images)).argmax(1)
  return (predicted == labels).mean()


def digits(seed):
  """Pretrained network, herding exemplars at 2 per class, data and queries."""
  images, labels = datasets.load_digits(return_X_y=True)
  images = np.round(images * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
  labels = labels.astype(np.int32)
  order = np.random.default_rng(seed).permutation(len(images))
  images, labels = images[order], labels[order]
  data, queries = (images[:1000], labels[:1000]), (images[1000:], labels[1000:])
  floats = bilevel.from_uint8(data[0])
  variables = pretrain(jax.random.key(seed), floats, data[1])
  features = np.asarray(features_fn(variables, floats))
  chosen = []
  for c in range(10):
    rows = np.flatnonzero(data[1] == c)
    chosen.extend(rows[herding(features[rows], 2)])
  exemplars = Exemplars(floats[np.array(chosen)], jnp.asarray(data[1][chosen]))
  queries = bilevel.from_uint8(queries[0]), jnp.asarray(queries[1])
  return variables, exemplars, data, queries


ON_FEATURES = BilevelConfig(features_fn=features_fn, head_fn=head_fn)


def stored(exemplars):
  """What remains after a round trip through uint8."""
  return exemplars._replace(
    images=bilevel.from_uint8(bilevel.to_uint8(exemplars.images))
  )


def meta_loss(variables, batch, **static):
  run = functools.partial(bilevel.hypergradient, **static)
  run = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})
  return lambda exemplars: run(exemplars, variables, batch)[0]


def test_learned_exemplars_beat_herding_on_digits():
  config = change(ON_FEATURES, max_change=None, outer_lr=0.02)
  gains = []
  for seed in range(5, 10):  # The settings were chosen on seeds 0 to 4.
    variables, exemplars, data, queries = digits(seed)
    result = bilevel.optimize_exemplars(
      jax.random.key(seed), exemplars, variables, data, config=config
    )
    loss = meta_loss(variables, queries, config=config)
    assert loss(result.exemplars) < loss(exemplars)
    learned = head_accuracy(variables, stored(result.exemplars), *queries)
    gains.append(learned - head_accuracy(variables, exemplars, *queries))
  # Student's t for 95 % and 4 degrees of freedom.
  margin = 2.776 * np.std(gains, ddof=1) / np.sqrt(5)
  assert np.mean(gains) - margin > 0, gains


@pytest.mark.parametrize("config", [ON_FEATURES, BilevelConfig()])
def test_default_settings_move_pixels_and_improve_the_objective(config):
  variables, exemplars, data, queries = digits(0)
  kwargs = dict(apply_fn=apply_fn, config=config)
  result = bilevel.optimize_exemplars(
    jax.random.key(0), exemplars, variables, data, **kwargs
  )
  loss = meta_loss(variables, queries, **kwargs)
  assert loss(result.exemplars) < loss(exemplars)
  assert result.history.displacement[-1] > 0.5


def test_the_letter_of_the_paper_moves_no_pixel_to_another_grey_level():
  variables, exemplars, data, _ = digits(0)
  config = BilevelConfig.paper(epochs=5, steps_per_epoch=1, inner_steps=5)
  result = bilevel.optimize_exemplars(
    KEY, exemplars, variables, data, apply_fn=apply_fn, config=config
  )
  assert 0 < result.history.displacement[-1] < 0.1
  assert_equal(stored(result.exemplars), exemplars)


def tiny(n=6, seed=0, classes=3):
  """2×2 images on the uint8 grid, three classes, a random network."""
  rng = np.random.default_rng(seed)
  grid = lambda n: jnp.asarray(rng.integers(0, 256, (n, 2, 2, 1)), jnp.uint8)
  variables = init(jax.random.key(seed), pixels=4, hidden=5, dim=4, classes=3)
  labels = jnp.arange(n) % classes
  exemplars = Exemplars(bilevel.from_uint8(grid(n)), labels)
  data = grid(40), jnp.asarray(rng.integers(0, classes, 40))
  return exemplars, variables, data


TINY = change(ON_FEATURES, epochs=3, steps_per_epoch=2, inner_steps=2)
KEY = jax.random.key(7)


def assert_equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)


def brighten(key, images):
  return images * jax.random.uniform(key, (len(images), 1, 1, 1), minval=0.8)


def test_divergence_is_an_error_not_a_black_image():
  exemplars, variables, data = tiny()
  config = change(TINY, inner_lr=float("inf"))
  with pytest.raises(FloatingPointError, match="diverged in epoch 0"):
    bilevel.optimize_exemplars(KEY, exemplars, variables, data, config=config)


def test_continuing_a_saved_state_is_bitwise_the_same():
  exemplars, variables, data = tiny()
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
  exemplars, variables, data = tiny()
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


def test_uint8_round_trip_is_the_identity_and_never_wraps():
  stored = jnp.arange(256, dtype=jnp.uint8)
  floats = bilevel.from_uint8(stored)
  assert_equal(bilevel.to_uint8(floats), stored)
  assert floats.min() == 0 and floats.max() == 1
  wild = jnp.array([-3.0, -1e-3, 0.4999, 1.7, 300.0]) / jnp.array(
    [255, 1, 255, 1, 255]
  )
  assert_equal(
    bilevel.to_uint8(wild), jnp.array([0, 0, 0, 255, 255], jnp.uint8)
  )


def test_history_distances_are_those_of_the_features():
  exemplars, variables, data = tiny()
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


def test_adjusting_moves_one_half_at_a_time():
  exemplars, variables, _ = tiny(n=13)
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
  exemplars, variables, _ = tiny(n=9)
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


def test_a_second_call_compiles_nothing():
  from mnemonics_jax.bilevel_meta import embed_all, meta_steps

  exemplars, variables, data = tiny()
  bilevel.optimize_exemplars(KEY, exemplars, variables, data, config=TINY)
  sizes = meta_steps._cache_size(), embed_all._cache_size()
  exemplars, variables, data = tiny(seed=1)
  again = change(ON_FEATURES, epochs=3, steps_per_epoch=2, inner_steps=2)
  bilevel.optimize_exemplars(
    jax.random.key(8), exemplars, variables, data, config=again
  )
  assert (meta_steps._cache_size(), embed_all._cache_size()) == sizes


def test_forms_of_data_agree():
  exemplars, variables, (images, labels) = tiny()
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


def test_batches_cover_the_data_once_per_pass():
  exemplars, variables, data = tiny()
  seen = []

  def watch(variables, images):
    jax.debug.callback(lambda x: seen.append(np.asarray(x)), images[:, 0, 0, 0])
    return features_fn(variables, images)

  rows = jnp.arange(40.0).reshape(40, 1, 1, 1) / 40 * jnp.ones((1, 2, 2, 1))
  config = change(TINY, batch_norm="frozen", epochs=1, steps_per_epoch=None)
  config = change(
    config, batch_size=8, scope="all", inner_steps=0, features_fn=None
  )
  bilevel.optimize_exemplars(
    KEY, exemplars, variables, (rows, data[1]), config=config,
    apply_fn=lambda v, x: head_fn(v["params"]["head"], watch(v, x)),
  )  # fmt: skip
  jax.effects_barrier()
  batches = [x for x in seen if len(x) == 8]
  assert sorted(np.concatenate(batches) * 40) == pytest.approx(range(40))


def test_starts_are_drawn_per_meta_step():
  exemplars, variables, data = tiny()
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
  exemplars, variables, data = tiny()
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
