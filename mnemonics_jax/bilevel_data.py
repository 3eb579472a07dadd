"""Labelled data as the bilevel program takes them: forms, draws, contract.

Inside, everything is `Exemplars` (images, labels, mask) or `Features`.
"""

import itertools
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8
import numpy as np

from mnemonics_jax.bilevel_config import BilevelConfig
from mnemonics_jax.types import Exemplars


class Features(NamedTuple):
  """Data that already passed the frozen backbone; for `scope="head"`.

  Attributes:
    features: what `features_fn` gives for each image.
    labels: class index of each row.
    mask: which rows are real; None means all of them.
  """

  features: Float[Array, "n d"]
  labels: Int[Array, " n"]
  mask: Bool[Array, " n"] | None = None


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


def as_data(batch) -> Exemplars | Features:
  """(images, labels[, mask]) as `Exemplars`; `Features` as they are."""
  if isinstance(batch, Features | Exemplars):
    return batch
  if not isinstance(batch, tuple) or len(batch) not in (2, 3):
    raise TypeError(f"Expected (images, labels), got {type(batch).__name__}.")
  return Exemplars(*batch)


def from_uint8(images: UInt8[Array, "..."]) -> Float[Array, "..."]:
  """Stored pixels as floats in [0, 1]; floats pass unchanged."""
  if images.dtype != jnp.uint8:
    return images
  return jnp.asarray(images).astype(jnp.float32) / 255


def to_uint8(images: Float[Array, "..."]) -> UInt8[Array, "..."]:
  """Pixels in [0, 1] as they are stored: rounded and clipped.

  The identity on images that came from `from_uint8` and were not touched;
  uint8 passes unchanged.
  """
  if images.dtype == jnp.uint8:
    return images
  return jnp.clip(jnp.round(images * 255), 0, 255).astype(jnp.uint8)


def flatten_steps(inner_data) -> Exemplars | Features:
  """Batches along a leading step axis as one batch."""
  inputs, labels, *mask = inner_data
  mask = mask[0].reshape(-1) if mask and mask[0] is not None else None
  kind = Features if isinstance(inner_data, Features) else Exemplars
  return kind(inputs.reshape(-1, *inputs.shape[2:]), labels.reshape(-1), mask)


def masked(data):
  """Labelled data on the device with a mask, if need be of ones."""
  inputs, labels, mask = data
  mask = jnp.ones(len(labels), bool) if mask is None else jnp.asarray(mask)
  return type(data)(jnp.asarray(inputs), jnp.asarray(labels), mask)


def peek(data, config):
  """The first batch of an iterable and an iterator over all of them."""
  if config.steps_per_epoch is None:
    raise ValueError(
      "steps_per_epoch=None means one pass over the data, but an iterator has "
      "no length: give the number of steps."
    )
  iterator = iter(data)
  first = next(iterator, None)
  if first is None:
    raise ValueError("The iterator of validation batches is empty.")
  return first, itertools.chain([first], iterator)


def stack(batches, steps):
  """Batches of an epoch along a leading step axis."""
  batches = [masked(as_data(batch)) for batch in batches]
  if len(batches) < steps:
    raise ValueError(
      f"The iterator of validation batches ended {steps - len(batches)} short "
      "of an epoch: let it repeat, or lower epochs or steps_per_epoch."
    )
  return jax.tree.map(lambda *leaves: jnp.stack(leaves), *batches)


def deal(exemplars, parts):
  """Rows of each part [parts, m] and which of them are real."""
  labels = np.asarray(exemplars.labels)
  mask = exemplars.mask
  rows = np.arange(len(labels)) if mask is None else np.flatnonzero(mask)
  if not 2 <= parts <= len(rows):
    raise ValueError(
      f"parts={parts} of {len(rows)} exemplars: each part needs one, and one "
      "other part to be validated by."
    )
  rows = rows[np.argsort(labels[rows], kind="stable")]
  # Sized by all rows, padding included: the shape outlives a growing memory.
  size = -(-len(labels) // parts)
  dealt = np.zeros((parts, size), np.int32)
  real = np.zeros((parts, size), bool)
  for part in range(parts):
    own = rows[part::parts]
    dealt[part, : len(own)] = own
    real[part, : len(own)] = True
  return dealt, real


def check_exemplars(exemplars: Exemplars) -> None:
  """Raises if exemplars are not float32 images in [0, 1] with labels."""
  images = exemplars.images
  if images.dtype == np.uint8:
    raise TypeError(
      "exemplars.images is uint8; the optimiser moves floats in [0, 1]: "
      "wrap it in bilevel.from_uint8(...)."
    )
  _check_dtype(images, "exemplars.images")
  if images.ndim < 2 or len(images) == 0:
    raise ValueError(
      f"exemplars.images has shape {images.shape}; expected at least one image "
      "along the first axis, such as [n, height, width, channels]."
    )
  _check_rows(len(images), exemplars.labels, exemplars.mask, "exemplars")
  _check_pixels(images, exemplars.mask, "exemplars.images")


def check_data(
  data: Exemplars | Features, config: BilevelConfig, name: str
) -> None:
  """Raises if labelled data do not fit what the base level runs on."""
  inputs, labels, mask = data
  if isinstance(data, Features) and not config.on_features:
    raise ValueError(
      'Cached Features only serve scope="head" with features_fn and head_fn; '
      "pass images."
    )
  if inputs.dtype != np.uint8:
    _check_dtype(inputs, name)
  if len(inputs) == 0:
    raise ValueError(f"There is no {name}.")
  _check_rows(len(inputs), labels, mask, name)
  if not isinstance(data, Features) and inputs.dtype != np.uint8:
    _check_pixels(inputs, mask, name)


def check_inner_data(inner_data: Any, config: BilevelConfig) -> None:
  """Raises if `inner_data` is not one batch per inner step."""
  shapes = inner_data[0].shape[:2], inner_data[1].shape
  if shapes[0] != shapes[1] or shapes[0][0] != config.inner_steps:
    raise ValueError(
      f"inner_data begins with axes {shapes[0]} and has labels {shapes[1]}; "
      f"both must be (inner_steps={config.inner_steps}, batch)."
    )
  check_data(flatten_steps(inner_data), config, "inner_data")


def check_starts(starts: Any, variables: Any, data: Any) -> None:
  """Raises if `starts` is not `variables` with one more axis in front."""
  if starts is None:
    return
  if isinstance(data, Features):
    raise ValueError(
      "Cached Features belong to one backbone, but starts brings several: "
      "pass images as data."
    )
  several, one = jax.tree.flatten(starts), jax.tree.flatten(variables)
  pairs = zip(several[0], one[0], strict=False)
  if several[1] != one[1] or any(
    a.ndim != b.ndim + 1 or a.shape[1:] != b.shape for a, b in pairs
  ):
    raise ValueError(
      "starts must be `variables` with one more axis in front of every array: "
      "jax.tree.map(lambda *x: jnp.stack(x), variables_a, variables_b)."
    )


def check_labels(
  data: Exemplars | Features, classes: int, active: Any, name: str
) -> None:
  """Raises if a label lies outside the logits or among inactive classes."""
  if active is not None and active.shape != (classes,):
    raise ValueError(
      f"active has shape {active.shape}, but the model gives {classes} logits: "
      f"pass bool[{classes}]."
    )
  if not _concrete(data.labels, data.mask):
    return
  labels = _valid_rows(data.labels, data.mask)
  wrong = labels[(labels < 0) | (labels >= classes)]
  if wrong.size:
    raise ValueError(
      f"Label {wrong[0]} in {name}, but the model gives {classes} logits: "
      f"labels must be class indices from 0 to {classes - 1}."
    )
  if active is not None and _concrete(active):
    wrong = labels[~np.asarray(active)[labels]]
    if wrong.size:
      raise ValueError(
        f"Class {wrong[0]} occurs in {name} but is not active: its loss would "
        "be infinite. Activate it or mask those rows."
      )


def _check_rows(rows: int, labels: Any, mask: Any, name: str) -> None:
  if labels.shape != (rows,) or not np.issubdtype(labels.dtype, np.integer):
    raise ValueError(
      f"{name} has {rows} images but labels {labels.dtype}{labels.shape}; "
      f"expected integer class indices of shape ({rows},), not one-hot."
    )
  if mask is not None and (mask.shape != (rows,) or mask.dtype != bool):
    raise ValueError(
      f"The mask of {name} is {mask.dtype}{mask.shape}; expected bool({rows},)."
    )


def _check_pixels(images: Any, mask: Any, name: str) -> None:
  if not _concrete(images, mask):
    return
  real = _valid_rows(images, mask)
  if real.size and not (real.min() >= 0 and real.max() <= 1):  # NaN is neither.
    raise ValueError(
      f"{name} spans [{real.min():g}, {real.max():g}] but must lie in [0, 1]: "
      "divide 8-bit values by 255 and let the model normalise."
    )


def _check_dtype(array: Any, name: str) -> None:
  if array.dtype not in (np.float32, np.float64):
    raise TypeError(
      f"{name} is {array.dtype}; expected float32. Half precision cannot hold "
      "steps of a fraction of a grey level: cast with .astype('float32')."
    )


def _concrete(*arrays: Any) -> bool:
  """Whether all values can be looked at: neither traced nor mere shapes."""
  abstract = Tracer, jax.ShapeDtypeStruct
  return not any(isinstance(a, abstract) for a in arrays)


def _valid_rows(array: Any, mask: Any) -> np.ndarray:
  array = np.asarray(array)
  return array if mask is None else array[np.asarray(mask)]
