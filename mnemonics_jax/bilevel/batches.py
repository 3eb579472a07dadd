"""Labelled data as the bilevel program takes them: forms and draws.

Inside, everything is `Exemplars` (images, labels, mask) or `Features`.
"""

import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from mnemonics_jax.errors import UserError
from mnemonics_jax.types import Batch, Exemplars


class Features(NamedTuple):
  """Data that already passed the frozen backbone; for `scope="head"`.

  >>> from mnemonics_jax import bilevel
  >>> config = bilevel.BilevelConfig(
  ...   features_fn=lambda variables, images: images[:, 0, 0],
  ...   head_fn=lambda head, features: features @ head["weight"].T)
  >>> variables = {"params": {"head": {"weight": jnp.zeros((2, 3))}}}
  >>> exemplars = Exemplars(jnp.eye(3)[:2, None, None], jnp.arange(2))
  >>> seen = Features(jnp.eye(3)[:2], jnp.arange(2))
  >>> bilevel.prepare(exemplars, variables, seen, config=config).batch_size
  2

  Attributes:
    features: what `features_fn` gives for each image.
    labels: class index of each row.
    mask: which rows are real; None means all of them.
  """

  features: Float[Array, "n d"]
  labels: Int[Array, " n"]
  mask: Bool[Array, " n"] | None = None


Data = Batch | Exemplars | Features | tuple[Any, ...]
"""Labelled data as callers have them; a plain tuple is (images, labels[, mask])."""


def shuffle(key: Array, mask: Bool[Array, " n"]) -> Array:
  """Row numbers in random order, real rows first."""
  return jnp.argsort(
    jnp.where(mask, jax.random.uniform(key, mask.shape, jnp.float32), 2.0)
  )


def take(order: Array, mask: Array, size: int, step) -> tuple[Array, Array]:
  """The `step`-th batch of real rows, going round in `order`.

  Returns the rows and which of them count: in a batch larger than the number of
  real rows, the repeats do not.
  """
  real = mask.sum()
  position = step * size + jnp.arange(size)
  return order[position % jnp.maximum(real, 1)], jnp.arange(size) < real


def as_data(batch: Data) -> Exemplars | Features:
  """(images, labels[, mask]) as `Exemplars`; `Features` as they are."""
  if isinstance(batch, Features | Exemplars):
    return batch
  if not isinstance(batch, tuple) or len(batch) not in (2, 3):
    raise UserError(
      "data",
      f"Labelled data are a {type(batch).__name__}",
      "pass (images, labels) or (images, labels, mask)",
    )
  return Exemplars(*batch)


def flatten_steps(inner_data) -> Exemplars | Features:
  """Batches along a leading step axis as one batch."""
  inputs, labels, *mask = inner_data
  mask = mask[0].reshape(-1) if mask and mask[0] is not None else None
  kind = Features if isinstance(inner_data, Features) else Exemplars
  return kind(inputs.reshape(-1, *inputs.shape[2:]), labels.reshape(-1), mask)


def with_mask(data):
  """Labelled data on the device with a mask, if need be of ones."""
  inputs, labels, mask = data
  mask = jnp.ones(len(labels), bool) if mask is None else jnp.asarray(mask)
  return type(data)(jnp.asarray(inputs), jnp.asarray(labels), mask)


def peek(data, config):
  """The first batch of an iterable and an iterator over all of them."""
  if config.steps_per_epoch is None:
    raise UserError(
      "steps_per_epoch",
      "steps_per_epoch=None means one pass over the data, but an iterator has"
      " no length",
      "give the number of steps",
    )
  iterator = iter(data)
  first = next(iterator, None)
  if first is None:
    raise UserError(
      "data",
      "The iterator of validation batches is empty",
      "let it give at least one batch",
    )
  return first, itertools.chain([first], iterator)


def stack(batches, steps):
  """Batches of an epoch along a leading step axis."""
  batches = [with_mask(as_data(batch)) for batch in batches]
  if len(batches) < steps:
    raise UserError(
      "data",
      f"The iterator of validation batches ended {steps - len(batches)} short"
      " of an epoch",
      "let it repeat, or lower epochs or steps_per_epoch",
    )
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)


def split_parts(exemplars, parts):
  """Class-balanced parts: their rows [parts, m] and which of them are real."""
  labels = np.asarray(exemplars.labels)
  mask = exemplars.mask
  rows = np.arange(len(labels)) if mask is None else np.flatnonzero(mask)
  if parts != int(parts) or not 2 <= parts <= len(rows):
    raise UserError(
      "parts",
      f"parts={parts} of {len(rows)} exemplars cannot be made",
      "it must be a whole number, each part needs an exemplar, and one other part"
      " to be validated by",
    )
  rows = rows[np.argsort(labels[rows], kind="stable")]
  # Sized by all rows, padding included: the shape outlives a growing memory.
  size = -(-len(labels) // parts)
  dealt = np.zeros((parts, size), np.int32)
  real = np.zeros((parts, size), bool)
  for part in range(parts):
    chosen = rows[part::parts]
    dealt[part, : len(chosen)] = chosen
    real[part, : len(chosen)] = True
  return dealt, real
