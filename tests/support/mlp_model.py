"""A perceptron under a cosine head, and 2×2 images to learn exemplars of."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import BilevelConfig, Exemplars

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


ON_FEATURES = BilevelConfig(features_fn=features_fn, head_fn=head_fn)
TINY = change(ON_FEATURES, epochs=3, steps_per_epoch=2, inner_steps=2)
KEY = jax.random.key(7)


def draw(n=6, seed=0, classes=3):
  """2×2 images on the uint8 grid, three classes, a random network."""
  rng = np.random.default_rng(seed)
  grid = lambda n: jnp.asarray(rng.integers(0, 256, (n, 2, 2, 1)), jnp.uint8)
  variables = init(jax.random.key(seed), pixels=4, hidden=5, dim=4, classes=3)
  labels = jnp.arange(n) % classes
  exemplars = Exemplars(bilevel.from_uint8(grid(n)), labels)
  data = grid(40), jnp.asarray(rng.integers(0, classes, 40))
  return exemplars, variables, data


def assert_equal(a, b):
  jax.tree.map(np.testing.assert_array_equal, a, b)
