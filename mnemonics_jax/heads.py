"""Classifier heads, padded to the run's total number of classes.

Rows of classes not seen yet exist from the start, so shapes never change;
`mask_logits` keeps them out of every loss and prediction.
"""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from mnemonics_jax.types import PyTree

# Finite, because 0 · (−inf) in a distillation loss is NaN.
MASKED = -1e9


class Scores(NamedTuple):
  """What a head says about features.

  Attributes:
    logits: input of the softmax.
    cosines: logits without the scale σ; equal to the logits in a linear head.
  """

  logits: Float[Array, "n classes"]
  cosines: Float[Array, "n classes"]


def mask_logits(
  logits: Float[Array, "n classes"], active: Bool[Array, " classes"]
) -> Float[Array, "n classes"]:
  """Logits in which only `active` classes can win or carry probability."""
  return jnp.where(active, logits, MASKED)


def normalize(x: Float[Array, "... d"]) -> Float[Array, "... d"]:
  """x / ‖x‖ along the last axis, with a finite gradient at zero."""
  return x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + 1e-12)


@dataclasses.dataclass(frozen=True)
class CosineHead:
  """logits = σ · cos(f, w_c), with learnable σ.

  Attributes:
    sigma: initial σ.
  """

  sigma: float = 10.0

  def init(self, key: Array, dim: int, classes: int) -> PyTree:
    return {
      "weight": _uniform(key, dim, classes),
      "sigma": jnp.float32(self.sigma),
    }

  def scores(self, params: PyTree, features: Float[Array, "n d"]) -> Scores:
    cosines = normalize(features) @ normalize(params["weight"]).T
    return Scores(params["sigma"] * cosines, cosines)


@dataclasses.dataclass(frozen=True)
class LinearHead:
  """logits = f · w_c + b_c."""

  def init(self, key: Array, dim: int, classes: int) -> PyTree:
    return {
      "weight": _uniform(key, dim, classes),
      "bias": jnp.zeros(classes),
    }

  def scores(self, params: PyTree, features: Float[Array, "n d"]) -> Scores:
    logits = features @ params["weight"].T + params["bias"]
    return Scores(logits, logits)


Head = CosineHead | LinearHead


def _uniform(key, dim, classes):
  bound = dim**-0.5
  return jax.random.uniform(key, (classes, dim), minval=-bound, maxval=bound)


def imprint(
  params: PyTree,
  means: Float[Array, "classes d"],
  old: Bool[Array, " classes"],
  new: Bool[Array, " classes"],
) -> PyTree:
  """Writes class means into the rows of new classes (weight imprinting).

  Each new row points along its class mean and has the mean norm of the old
  rows, so that old and new classes start on equal terms.
  """
  weight = params["weight"]
  norms = jnp.linalg.norm(weight, axis=-1)
  norm = jnp.sum(norms * old) / jnp.maximum(jnp.sum(old), 1)
  weight = jnp.where(new[:, None], norm * normalize(means), weight)
  return params | {"weight": weight}
