"""A learned choice, against brute force and by hand."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import choice
from mnemonics_jax.nn import heads

CONFIG = bilevel.BilevelConfig(
  features_fn=lambda variables, images: images,
  head_fn=lambda head, x: heads.CosineHead().scores(head, x).logits,
  epochs=40,
  inner_steps=1,
  batch_size=64,
).resolve()
HEAD = {"weight": jnp.zeros((3, 2)), "sigma": jnp.float32(4)}


def test_weights_are_halves_at_the_border_and_those_of_full_classes_one():
  """Two of three are chosen of class 0, all of class 1, none of class 2."""
  candidates = bilevel.Features(
    jnp.ones((7, 2)),
    jnp.array([0, 1, 0, 0, 1, 2, 0]),
    jnp.array([True] * 6 + [False]),
  )
  scores = jnp.array([0.3, -5.0, 0.1, 0.2, 4.0, 9.0, 99.0])
  found = choice._weights(scores, candidates, jnp.array([2, 2, 0]))
  # The border of class 0 is 0.15: 1.5, 0.5 and -0.5 softnesses away.
  sigmoid = lambda x: 1 / (1 + np.exp(-x))
  expected = [sigmoid(1.5), 1, sigmoid(-0.5), sigmoid(0.5), 1, 0, 0]
  np.testing.assert_allclose(found, expected, atol=1e-6)


def _losses(choices, features, labels, valid):
  """What heads cost that are trained on these rows alone."""
  config = bilevel.BilevelConfig(
    features_fn=lambda variables, images: images[:, 0, 0],
    head_fn=CONFIG.head_fn,
    inner_steps=1,
  )

  def loss(rows):
    part = bilevel.Exemplars(features[rows][:, None, None], labels[rows])
    variables = {"params": {"head": HEAD}}
    return bilevel.meta_loss(part, variables, valid, config=config)

  return np.asarray(jax.jit(lambda all: jax.lax.map(loss, all))(choices))


def test_what_is_learned_is_better_than_most_choices():
  rng = np.random.default_rng(0)
  centres = np.array([[3.0, 0.0], [0.0, 3.0], [-2.0, -2.0]])
  draw = lambda n: jnp.asarray(
    centres[np.repeat(np.arange(3), n)] + rng.normal(0, 1.5, (3 * n, 2)),
    jnp.float32,
  )
  labels = jnp.repeat(jnp.arange(3), 4)
  features = draw(4)
  valid = bilevel.Features(draw(60), jnp.repeat(jnp.arange(3), 60))
  pairs = [itertools.combinations(range(4 * c, 4 * c + 4), 2) for c in range(3)]
  choices = np.array(list(itertools.product(*pairs))).reshape(-1, 6)
  losses = _losses(jnp.asarray(choices), features, labels, valid)
  # It begins with the worst of all.
  worst = choices[np.argmax(losses)]
  scores = np.where(np.isin(np.arange(12), worst), 0.0, -0.3)
  found = bilevel.learn_choice(
    jax.random.key(0), bilevel.Features(features, labels),
    jnp.asarray(scores, jnp.float32), jnp.array([2, 2, 2]), HEAD, valid,
    config=CONFIG,
  )  # fmt: skip
  assert found.losses.shape == (40 * 5,)
  assert found.losses[-20:].mean() < found.losses[:20].mean()
  order = np.lexsort((-np.asarray(found.scores), np.asarray(labels)))
  chosen = order.reshape(3, 4)[:, :2].reshape(1, 6)
  mine = _losses(jnp.asarray(chosen), features, labels, valid)[0]
  assert np.mean(mine < losses) > 0.8


def test_padding_changes_nothing():
  rng = np.random.default_rng(1)
  features = rng.normal(size=(6, 2)).astype(np.float32)
  labels, scores = np.array([0, 0, 1, 1, 2, 2]), np.tile([0.0, -0.2], 3)
  valid = bilevel.Features(
    jnp.asarray(features[::-1]), jnp.asarray(labels[::-1])
  )

  def learn(padding):
    pad = lambda x: jnp.asarray(
      np.pad(x, [(0, padding)] + [(0, 0)] * (x.ndim - 1))
    )
    candidates = bilevel.Features(
      pad(features), pad(labels), jnp.arange(6 + padding) < 6
    )
    return bilevel.learn_choice(
      jax.random.key(0), candidates, pad(scores.astype(np.float32)),
      jnp.array([1, 1, 1]), HEAD, valid, config=CONFIG,
    ).scores[:6]  # fmt: skip

  np.testing.assert_allclose(learn(0), learn(5), atol=1e-4)
