"""A small convolutional model, smooth everywhere, to differentiate through."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import BilevelConfig, Exemplars

CLASSES = 3


def features_fn(variables, images, train=False):
  """Convolution, batch normalisation, tanh, pooling: smooth everywhere."""
  backbone = variables["params"]["backbone"]
  kernel = backbone["kernel"] * variables["transfer"]["scale"]
  x = jax.lax.conv_general_dilated(
    images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
  )
  mean, var = variables["batch_stats"]["mean"], variables["batch_stats"]["var"]
  if train:
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
  x = (x - mean) * jax.lax.rsqrt(var + 1e-3) * backbone["gain"]
  x = jnp.tanh(x + backbone["bias"])
  return x.reshape(len(x), 2, 2, 4, -1).mean((2, 3)).reshape(len(x), -1)


def head_fn(head, features):
  unit = lambda x: x * jax.lax.rsqrt(jnp.sum(x**2, -1, keepdims=True) + 1e-12)
  return head["sigma"] * unit(features) @ unit(head["weight"]).T


def apply_fn(variables, images, train=False):
  features = features_fn(variables, images, train)
  return head_fn(variables["params"]["head"], features)


def draw(dtype=np.float64, n=6, seed=0):
  rng = np.random.default_rng(seed)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
  uniform = lambda *shape: jnp.asarray(rng.uniform(0.05, 0.95, shape), dtype)
  variables = {
    "params": {
      "backbone": {
        "kernel": normal(3, 3, 1, 2),
        "gain": 1 + 0.1 * normal(2),
        "bias": 0.1 * normal(2),
      },
      "head": {"weight": normal(CLASSES, 4), "sigma": jnp.asarray(4.0, dtype)},
    },
    "transfer": {"scale": 1 + 0.1 * normal(1, 1, 1, 2)},
    "batch_stats": {"mean": 0.1 * normal(2), "var": 1 + uniform(2)},
  }
  exemplars = Exemplars(uniform(n, 4, 4, 1), jnp.arange(n) % CLASSES)
  batch = uniform(8, 4, 4, 1), jnp.asarray(rng.integers(0, CLASSES, 8))
  return exemplars, variables, batch


HALF_MASK = np.array([True, True, True, True, False, False])
ON_FEATURES: dict[str, Any] = dict(features_fn=features_fn, head_fn=head_fn)
ALL = BilevelConfig(scope="all", inner_steps=3, inner_lr=0.3, remat="none")
HEAD = BilevelConfig(inner_steps=3, inner_lr=0.3, remat="none", **ON_FEATURES)
change = dataclasses.replace
# Compiling costs more than running here: five times less without optimisation.
quick_jit = functools.partial(
  jax.jit,
  compiler_options={
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
  },
)


def jitted(variables, batch, config, **kwargs):
  """images -> (loss, gradient), compiled."""

  @quick_jit
  def run(exemplars, kwargs):
    return bilevel.hypergradient(
      exemplars, variables, batch, apply_fn=apply_fn, config=config, **kwargs
    )

  return lambda exemplars: run(exemplars, kwargs)


def unrolled(exemplars, variables, config, apply_fn=apply_fn, **kwargs):
  run = functools.partial(bilevel.unroll, apply_fn=apply_fn, config=config)
  return quick_jit(run)(exemplars, variables, **kwargs)


def plain_loss(variables, images, labels):
  logp = jax.nn.log_softmax(apply_fn(variables, images))
  return -logp[jnp.arange(len(labels)), labels].mean()


def assert_trees_close(actual, expected, rtol=1e-9):
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12),
    actual,
    expected,
  )


def linear_problem(n):
  def apply_fn(variables, images):
    return images.reshape(len(images), -1) @ variables["params"]

  rng = np.random.default_rng(0)
  images = jnp.asarray(rng.uniform(size=(2 * n, 16, 16, 1)), jnp.float32)
  labels = jnp.arange(2 * n) % CLASSES
  variables = {"params": jnp.zeros((256, CLASSES))}
  exemplars = Exemplars(images[:n], labels[:n])
  return apply_fn, (exemplars, variables, (images[n:], labels[n:]))
