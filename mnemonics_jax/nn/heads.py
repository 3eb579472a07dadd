"""Classifier heads, padded to the number of classes of the whole run.

Rows of future classes exist from the start, so shapes never change. `mask_logits`
keeps them out of losses and predictions.
"""

from collections.abc import Mapping
import dataclasses
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np

from mnemonics_jax.types import PyTree

# Finite, because 0 · (−inf) in a distillation loss is NaN.
MASKED = -1e9


class Scores(NamedTuple):
  """Scores of a head.

  Attributes:
    logits: input of the softmax.
    cosines: logits without the scale σ; equal to the logits in a linear head.
  """

  logits: Float[Array, "n classes"]
  cosines: Float[Array, "n classes"]


def mask_logits(
  logits: Float[Array, "n classes"],
  active: Bool[Array | np.ndarray, " classes"],
) -> Float[Array, "n classes"]:
  """Logits in which only `active` classes can win or carry probability.

  >>> logits = jnp.array([[1.0, 5.0, 2.0]])
  >>> int(mask_logits(logits, jnp.array([True, False, True])).argmax())
  2
  """
  return jnp.where(active, logits, MASKED)


def normalize(x: Float[Array, "... d"]) -> Float[Array, "... d"]:
  """x / ‖x‖ along the last axis, with a finite gradient at zero.

  >>> [round(x, 4) for x in normalize(jnp.array([3.0, 4.0])).tolist()]
  [0.6, 0.8]
  """
  return x * jax.lax.rsqrt(jnp.sum(x * x, -1, keepdims=True) + 1e-12)


@dataclasses.dataclass(frozen=True)
class CosineHead:
  """logits = σ · cos(f, w_c), with learnable σ.

  Attributes:
    sigma: initial σ.
  """

  sigma: float = 10.0

  def init(self, key: Array, dim: int, classes: int) -> PyTree:
    """Random rows and σ."""
    return {
      "weight": _uniform(key, dim, classes),
      "sigma": jnp.float32(self.sigma),
    }

  def scores(self, params: PyTree, features: Float[Array, "n d"]) -> Scores:
    """Cosines of features and rows, and σ times them."""
    cosines = normalize(features) @ normalize(params["weight"]).T
    return Scores(params["sigma"] * cosines, cosines)


@dataclasses.dataclass(frozen=True)
class LinearHead:
  """logits = f · w_c + b_c."""

  def init(self, key: Array, dim: int, classes: int) -> PyTree:
    """Random rows and no bias."""
    return {
      "weight": _uniform(key, dim, classes),
      "bias": jnp.zeros(classes),
    }

  def scores(self, params: PyTree, features: Float[Array, "n d"]) -> Scores:
    """Inner products of features and rows, plus the bias."""
    logits = features @ params["weight"].T + params["bias"]
    return Scores(logits, logits)


Head = CosineHead | LinearHead


def _uniform(key, dim, classes):
  bound = dim**-0.5
  return jax.random.uniform(key, (classes, dim), minval=-bound, maxval=bound)


def imprint(
  params: Mapping[str, Array],
  means: Float[Array, "classes d"],
  where: Bool[Array, " classes"],
  norm: float | Float[Array, ""] = 1.0,
) -> PyTree:
  """Writes class means into rows of the head (weight imprinting).

  Args:
    params: of the head; the rows lie under `weight`.
    means: the direction of each class, of any length.
    where: the rows to write; the others stay.
    norm: length of the written rows.
  """
  chex.assert_rank([means, where], [2, 1])
  chex.assert_equal_shape([means, params["weight"]])
  rows = norm * normalize(means)
  return {**params, "weight": jnp.where(where[:, None], rows, params["weight"])}
