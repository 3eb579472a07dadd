"""Learned exemplars against those of herding, on digits and on CIFAR-100."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn import datasets
from support import mlp_model
from support.mlp_model import KEY, apply_fn, assert_equal, change

from mnemonics_jax import bilevel, data
from mnemonics_jax.bilevel import BilevelConfig, Exemplars
from mnemonics_jax.exemplars.choose import herding
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.augment import CropFlip
from mnemonics_jax.nn.heads import CosineHead, normalize


def cross_entropy(logits, labels):
  return -jax.nn.log_softmax(logits)[jnp.arange(len(labels)), labels].mean()


def stored(exemplars):
  """What remains after a round trip through uint8."""
  images = bilevel.from_uint8(bilevel.to_uint8(exemplars.images))
  return exemplars._replace(images=images)


def herded(features, images, labels, classes):
  """Two exemplars of each class by herding."""
  chosen = []
  for c in range(classes):
    rows = np.flatnonzero(labels == c)
    chosen.extend(rows[herding(features[rows], 2)])
  images = bilevel.from_uint8(images[np.array(chosen)])
  return Exemplars(images, jnp.asarray(labels[chosen]))


@functools.partial(jax.jit, static_argnames=("features_fn", "head_fn", "steps"))
def accuracies(
  variables, exemplars, queries, features_fn, head_fn, rate, steps
):
  """Of the nearest mean, and of a head trained from scratch, on exemplars."""
  head = variables["params"]["head"]
  features = features_fn(variables, exemplars.images)
  member = jax.nn.one_hot(exemplars.labels, len(head["weight"])).T
  nearest = normalize(queries[0]) @ normalize(member @ normalize(features)).T
  logits = lambda weight, x: head_fn({**head, "weight": weight}, x)
  loss = lambda weight: cross_entropy(
    logits(weight, features), exemplars.labels
  )
  start = normalize(jax.random.normal(jax.random.key(0), head["weight"].shape))
  step = lambda _, w: normalize(w - rate * jax.grad(loss)(w))
  trained = logits(jax.lax.fori_loop(0, steps, step, start), queries[0])
  return jnp.stack(
    [(scores.argmax(1) == queries[1]).mean() for scores in (nearest, trained)]
  )


# Digits, with a perceptron.


@jax.jit
def pretrain(key, images, labels):
  """A few steps of Adam: features better than random, far from perfect."""
  tx = optax.adam(0.01)
  variables = mlp_model.init(key)

  def step(_, carry):
    variables, opt_state = carry
    grads = jax.grad(lambda v: cross_entropy(apply_fn(v, images), labels))
    updates, opt_state = tx.update(grads(variables), opt_state)
    return optax.apply_updates(variables, updates), opt_state

  return jax.lax.fori_loop(0, 12, step, (variables, tx.init(variables)))[0]


def digits(seed):
  """Pretrained network, exemplars by herding, data and queries."""
  images, labels = datasets.load_digits(return_X_y=True)
  images = np.round(images * 255 / 16).astype(np.uint8).reshape(-1, 8, 8, 1)
  order = np.random.default_rng(seed).permutation(len(images))
  images, labels = images[order], labels[order].astype(np.int32)
  known, queries = (
    (images[:1000], labels[:1000]),
    (images[1000:], labels[1000:]),
  )
  floats = bilevel.from_uint8(known[0])
  variables = pretrain(jax.random.key(seed), floats, known[1])
  features = np.asarray(mlp_model.features_fn(variables, floats))
  exemplars = herded(features, *known, classes=10)
  queries = bilevel.from_uint8(queries[0]), jnp.asarray(queries[1])
  return variables, exemplars, known, queries


def meta_loss(variables, batch, **static):
  run = functools.partial(bilevel.hypergradient, **static)
  run = jax.jit(run, compiler_options={"xla_backend_optimization_level": 0})
  return lambda exemplars: run(exemplars, variables, batch)[0]


def test_learned_exemplars_beat_herding_on_digits():
  config = change(mlp_model.ON_FEATURES, max_change=None, outer_lr=0.02)
  gains = []
  for seed in range(5, 10):  # The settings were chosen on seeds 0 to 4.
    variables, exemplars, known, queries = digits(seed)
    result = bilevel.optimize_exemplars(
      jax.random.key(seed), exemplars, variables, known, config=config
    )
    loss = meta_loss(variables, queries, config=config)
    assert loss(result.exemplars) < loss(exemplars)
    asked = mlp_model.features_fn(variables, queries[0]), queries[1]
    before, after = (
      accuracies(
        variables, kept, asked, mlp_model.features_fn, mlp_model.head_fn,
        rate=0.3, steps=200,
      )[1]
      for kept in (exemplars, stored(result.exemplars))
    )  # fmt: skip
    gains.append(after - before)
  # Student's t for 95 % and 4 degrees of freedom.
  margin = 2.776 * np.std(gains, ddof=1) / np.sqrt(5)
  assert np.mean(gains) - margin > 0, gains


@pytest.mark.parametrize("config", [mlp_model.ON_FEATURES, BilevelConfig()])
def test_default_settings_move_pixels_and_improve_the_objective(config):
  variables, exemplars, known, queries = digits(0)
  kwargs = dict(apply_fn=apply_fn, config=config)
  result = bilevel.optimize_exemplars(
    jax.random.key(0), exemplars, variables, known, **kwargs
  )
  loss = meta_loss(variables, queries, **kwargs)
  assert loss(result.exemplars) < loss(exemplars)
  assert result.history.displacement[-1] > 0.5


def test_the_letter_of_the_paper_moves_no_pixel_to_another_grey_level():
  variables, exemplars, known, _ = digits(0)
  config = BilevelConfig.paper(epochs=5, steps_per_epoch=1, inner_steps=5)
  result = bilevel.optimize_exemplars(
    KEY, exemplars, variables, known, apply_fn=apply_fn, config=config
  )
  assert 0 < result.history.displacement[-1] < 0.1
  assert_equal(stored(result.exemplars), exemplars)


# CIFAR-100, with a ResNet.

CLASSES = 20
NET, HEAD, AUGMENT = networks.resnet8(), CosineHead(), CropFlip()


def features_fn(variables, images):
  backbone = variables["params"]["backbone"]
  frozen = {"params": backbone, "batch_stats": variables["batch_stats"]}
  return NET.features(frozen, images)[0]


def head_fn(head, features):
  sigma = jax.lax.stop_gradient(head["sigma"])
  return HEAD.scores({**head, "sigma": sigma}, features).logits


def train(key, images, labels, steps):
  """SGD with momentum and a cosine schedule on random augmented batches."""
  start = NET.init(jax.random.fold_in(key, 0))
  head = HEAD.init(jax.random.fold_in(key, 1), NET.feature_dim, CLASSES)
  params = {"backbone": start["params"], "head": head}
  tx = optax.sgd(optax.cosine_decay_schedule(0.1, steps), momentum=0.9)

  def loss(params, batch_stats, images, labels):
    variables = {"params": params["backbone"], "batch_stats": batch_stats}
    features, batch_stats = NET.features(variables, images, train=True)
    logits = HEAD.scores(params["head"], features).logits
    return cross_entropy(logits, labels), batch_stats

  @jax.jit
  def step(carry, key):
    params, batch_stats, opt_state = carry
    row_key, view_key = jax.random.split(key)
    rows = jax.random.randint(row_key, (128,), 0, len(images))
    batch = AUGMENT(view_key, bilevel.from_uint8(images[rows]))
    grads, batch_stats = jax.grad(loss, has_aux=True)(
      params, batch_stats, batch, labels[rows]
    )
    updates, opt_state = tx.update(grads, opt_state)
    return optax.apply_updates(params, updates), batch_stats, opt_state

  carry = params, start["batch_stats"], tx.init(params)
  for t in range(steps):
    carry = step(carry, jax.random.fold_in(key, t + 2))
  return {"params": carry[0], "batch_stats": carry[1]}


@jax.jit
def embed(variables, images):
  chunks = images.reshape(-1, 250, *images.shape[1:])
  one = lambda x: features_fn(variables, bilevel.from_uint8(x))
  return jax.lax.map(one, chunks).reshape(len(images), -1)


@pytest.mark.slow
def test_learned_exemplars_beat_herding_on_cifar():
  directory = os.environ.get("MNEMONICS_DATA_DIR")
  if not directory:
    pytest.skip("MNEMONICS_DATA_DIR does not name a directory with CIFAR-100")
  cifar = data.load("cifar100", directory)
  seen, asked = cifar.train_labels < CLASSES, cifar.test_labels < CLASSES
  images, labels = cifar.train_images[seen], cifar.train_labels[seen]
  variables = train(
    jax.random.key(0), jnp.asarray(images), jnp.asarray(labels), steps=300
  )
  features = np.asarray(embed(variables, images))
  queries = embed(variables, cifar.test_images[asked]), cifar.test_labels[asked]
  config = BilevelConfig(
    features_fn=features_fn, head_fn=head_fn, augment=AUGMENT, outer_lr=0.006,
    max_change=None,
  )  # fmt: skip
  gains = []
  for seed in range(3):
    # Another half of the images of each class for each seed.
    rng = np.random.default_rng(seed)
    rows = np.concatenate(
      [
        rng.permutation(np.flatnonzero(labels == c))[:250]
        for c in range(CLASSES)
      ]
    )
    exemplars = herded(features[rows], images[rows], labels[rows], CLASSES)
    learned = bilevel.optimize_exemplars(
      jax.random.key(seed),
      exemplars,
      variables,
      bilevel.Features(jnp.asarray(features[rows]), jnp.asarray(labels[rows])),
      config=config,
    ).exemplars
    before, after = (
      accuracies(
        variables,
        stored(kept),
        queries,
        features_fn,
        head_fn,
        rate=0.1,
        steps=500,
      )
      for kept in (exemplars, learned)
    )
    gains.append(np.asarray(after - before))
  assert (np.stack(gains) > 0).all(), gains
