"""Learned exemplars against herding on real images with frozen features."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mnemonics_jax import bilevel, data
from mnemonics_jax.memory import selection
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.augment import CropFlip
from mnemonics_jax.nn.heads import CosineHead, normalize

CLASSES = 20
PER_CLASS = 2
NET = networks.resnet8()
HEAD = CosineHead()
AUGMENT = CropFlip()


def features_fn(variables, images):
  backbone = variables["params"]["backbone"]
  frozen = {"params": backbone, "batch_stats": variables["batch_stats"]}
  return NET.features(frozen, images)[0]


def head_fn(head, features):
  sigma = jax.lax.stop_gradient(head["sigma"])
  return HEAD.scores({**head, "sigma": sigma}, features).logits


def cross_entropy(logits, labels):
  losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
  return losses.mean()


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


@jax.jit
def accuracies(exemplars, labels, sigma, queries, query_labels):
  """Nearest mean, and a head trained from scratch, on features."""
  onehot = jax.nn.one_hot(labels, CLASSES).T
  means = normalize(onehot @ normalize(exemplars))
  nearest = (normalize(queries) @ means.T).argmax(1)

  def loss(weight):
    head = {"weight": weight, "sigma": sigma}
    return cross_entropy(head_fn(head, exemplars), labels)

  start = jax.random.normal(jax.random.key(0), means.shape)
  step = lambda _, w: normalize(w - 0.1 * jax.grad(loss)(w))
  weight = jax.lax.fori_loop(0, 500, step, normalize(start))
  head = (normalize(queries) @ weight.T).argmax(1)
  return jnp.stack([(nearest == query_labels).mean(),
                    (head == query_labels).mean()])  # fmt: skip


@pytest.mark.slow
def test_learned_exemplars_beat_herding_on_cifar():
  directory = os.environ.get("MNEMONICS_DATA_DIR")
  if not directory:
    pytest.skip("MNEMONICS_DATA_DIR does not name a directory with CIFAR-100")
  cifar = data.load("cifar100", directory)
  seen = cifar.train_labels < CLASSES
  images, labels = cifar.train_images[seen], cifar.train_labels[seen]
  asked = cifar.test_labels < CLASSES
  queries, query_labels = cifar.test_images[asked], cifar.test_labels[asked]
  variables = train(
    jax.random.key(0), jnp.asarray(images), jnp.asarray(labels), steps=300
  )
  features = np.asarray(embed(variables, images))
  query_features = embed(variables, queries)
  sigma = variables["params"]["head"]["sigma"]
  config = bilevel.BilevelConfig(
    features_fn=features_fn,
    head_fn=head_fn,
    augment=AUGMENT,
    outer_lr=0.006,
    max_change=None,
  )

  gains = []
  for seed in range(3):
    # Another half of the images of each class for each seed.
    rng = np.random.default_rng(seed)
    rows = [
      rng.permutation(np.flatnonzero(labels == c)) for c in range(CLASSES)
    ]
    rows = np.stack(rows)[:, :250]
    chosen = [row[selection.herding(features[row], PER_CLASS)] for row in rows]
    chosen, rows = np.concatenate(chosen), rows.reshape(-1)
    herded = bilevel.Exemplars(
      bilevel.from_uint8(images[chosen]), jnp.asarray(labels[chosen])
    )
    learned = bilevel.optimize_exemplars(
      jax.random.key(seed),
      herded,
      variables,
      bilevel.Features(jnp.asarray(features[rows]), jnp.asarray(labels[rows])),
      config=config,
    ).exemplars
    before, after = (
      accuracies(
        features_fn(
          variables, bilevel.from_uint8(bilevel.to_uint8(exemplars.images))
        ),
        exemplars.labels,
        sigma,
        query_features,
        query_labels,
      )
      for exemplars in (herded, learned)
    )
    gains.append(np.asarray(after - before))
  assert (np.stack(gains) > 0).all(), gains
