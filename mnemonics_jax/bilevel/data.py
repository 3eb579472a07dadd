"""Labelled data as the bilevel program takes them: forms, draws and checks.

Inside, everything is `Exemplars` (images, labels, mask) or `Features`. The checks
give each mistake of a caller an error that names it and its remedy.
"""

import inspect
import itertools
from typing import Any, NamedTuple

import jax
from jax.core import Tracer
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np

from mnemonics_jax.bilevel.config import ApplyFn, BilevelConfig
from mnemonics_jax.errors import UserError
from mnemonics_jax.types import Batch, Exemplars


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


# What callers may pass.


def check_functions(apply_fn: ApplyFn | None, config: BilevelConfig) -> None:
  """Raises if the functions given cannot compute logits in the asked mode."""
  pair = config.features_fn is not None and config.head_fn is not None
  if apply_fn is None and not pair:
    raise UserError(
      "apply_fn",
      "No model was given",
      "pass apply_fn=..., or a config with features_fn and head_fn",
    )
  if config.batch_norm == "batch":
    use_pair = config.on_features or apply_fn is None
    function = config.features_fn if use_pair else apply_fn
    parameters = inspect.signature(function).parameters  # pyright: ignore
    open_ended = any(p.kind == p.VAR_KEYWORD for p in parameters.values())
    if "train" not in parameters and not open_ended:
      raise UserError(
        "batch_norm",
        'batch_norm="batch" calls the model with train=True, but the function'
        " given has no such argument",
        'add it, or use batch_norm="frozen"',
      )


def check_model(
  logits: Any,
  exemplars: Exemplars,
  batch: Exemplars | Features | None,
  active: Any,
  inner_data: Any,
  config: BilevelConfig,
) -> None:
  """Raises if logits, as shapes, and data do not belong together."""
  if getattr(logits, "shape", ())[:-1] != exemplars.labels.shape:
    raise UserError(
      "apply_fn",
      f"The model returns {jax.tree.map(lambda x: x.shape, logits)}",
      "it must return logits [images, classes] and nothing else",
    )
  classes = logits.shape[-1]
  check_labels(exemplars, classes, active, "exemplars")
  if batch is not None:
    check_data(batch, config, "validation data")
    check_labels(batch, classes, active, "validation data")
  if inner_data is not None:
    check_inner_data(inner_data, config)
    check_labels(flatten_steps(inner_data), classes, active, "inner_data")


def check_exemplars(exemplars: Exemplars) -> None:
  """Raises if exemplars are not float32 images in [0, 1] with labels."""
  images = exemplars.images
  _check_arrays(exemplars, "exemplars")
  if images.dtype == np.uint8:
    raise UserError(
      "exemplars",
      "exemplars.images is uint8, but the optimiser moves floats in [0, 1]",
      "wrap it in bilevel.from_uint8(...)",
    )
  _check_dtype(images, "exemplars.images")
  if images.ndim < 2 or len(images) == 0:
    raise UserError(
      "exemplars",
      f"exemplars.images has shape {images.shape}",
      "give at least one image along the first axis, such as"
      " [n, height, width, channels]",
    )
  _check_rows(len(images), exemplars.labels, exemplars.mask, "exemplars")
  _check_pixels(images, exemplars.mask, "exemplars.images")


def check_data(
  data: Exemplars | Features, config: BilevelConfig, name: str
) -> None:
  """Raises if labelled data do not fit what the base level runs on."""
  inputs, labels, mask = data
  _check_arrays(data, name)
  if isinstance(data, Features) and not config.on_features:
    raise UserError(
      name,
      'Cached Features only serve scope="head" with features_fn and head_fn',
      "pass images",
    )
  if inputs.dtype != np.uint8:
    _check_dtype(inputs, name)
  if len(inputs) == 0:
    raise UserError(name, f"There is no {name}", "give at least one row")
  _check_rows(len(inputs), labels, mask, name)
  if not isinstance(data, Features) and inputs.dtype != np.uint8:
    _check_pixels(inputs, mask, name)


def check_inner_data(inner_data: Any, config: BilevelConfig) -> None:
  """Raises if `inner_data` is not one batch per inner step."""
  _check_arrays(inner_data, "inner_data")
  shapes = inner_data[0].shape[:2], inner_data[1].shape
  if shapes[0] != shapes[1] or shapes[0][0] != config.inner_steps:
    raise UserError(
      "inner_data",
      f"inner_data begins with axes {shapes[0]} and has labels {shapes[1]}",
      f"both must be (inner_steps={config.inner_steps}, batch)",
    )
  check_data(flatten_steps(inner_data), config, "inner_data")


def check_starts(starts: Any, variables: Any, data: Any) -> None:
  """Raises if `starts` is not `variables` with one more axis in front."""
  if starts is None:
    return
  if isinstance(data, Features):
    raise UserError(
      "starts",
      "Cached Features belong to one backbone, but starts brings several",
      "pass images as data",
    )
  several, one = jax.tree.flatten(starts), jax.tree.flatten(variables)
  pairs = zip(several[0], one[0], strict=False)
  if several[1] != one[1] or any(
    a.ndim != b.ndim + 1 or a.shape[1:] != b.shape for a, b in pairs
  ):
    raise UserError(
      "starts",
      "starts must be the variables with one more axis in front of every array",
      "make it with"
      " jax.tree.map(lambda *x: jnp.stack(x), variables_a, variables_b)",
    )


def check_labels(
  data: Exemplars | Features, classes: int, active: Any, name: str
) -> None:
  """Raises if a label lies outside the logits or among inactive classes."""
  if active is not None:
    _check_arrays((active,), "active")
  if active is not None and active.shape != (classes,):
    raise UserError(
      "active",
      f"active has shape {active.shape}, but the model gives {classes} logits",
      f"pass bool[{classes}]",
    )
  if not _concrete(data.labels, data.mask):
    return
  labels = _valid_rows(data.labels, data.mask)
  wrong = labels[(labels < 0) | (labels >= classes)]
  if wrong.size:
    raise UserError(
      name,
      f"Label {wrong[0]} is in {name}, but the model gives {classes} logits",
      f"labels must be class indices from 0 to {classes - 1}",
    )
  if active is not None and _concrete(active):
    wrong = labels[~np.asarray(active)[labels]]
    if wrong.size:
      raise UserError(
        "active",
        f"Class {wrong[0]} occurs in {name} but is not active, so its loss"
        " would be infinite",
        "activate it or mask those rows",
      )


def _check_arrays(parts: Any, name: str) -> None:
  """Raises if a part is a list, or what else is no array."""
  fields = getattr(parts, "_fields", range(len(parts)))
  for field, part in zip(fields, parts, strict=True):
    if part is not None and not (
      hasattr(part, "dtype") and hasattr(part, "shape")
    ):
      place = name if len(parts) == 1 else f"{field} of {name}"
      raise UserError(
        name,
        f"{place} is a {type(part).__name__}, not an array",
        "wrap it in np.asarray(...)",
      )


def _check_rows(rows: int, labels: Any, mask: Any, name: str) -> None:
  if labels.shape != (rows,) or not np.issubdtype(labels.dtype, np.integer):
    raise UserError(
      name,
      f"{name} has {rows} images but labels {labels.dtype}{labels.shape}",
      f"give integer class indices of shape ({rows},), not one-hot",
    )
  if mask is not None and (mask.shape != (rows,) or mask.dtype != bool):
    raise UserError(
      name,
      f"The mask of {name} is {mask.dtype}{mask.shape}",
      f"make it bool({rows},)",
    )
  if name == "inner_data":  # A step may train on exemplars alone.
    return
  if mask is not None and _concrete(mask) and not np.asarray(mask).any():
    raise UserError(
      name,
      f"The mask of {name} leaves none of its {rows} rows",
      "at least one must be real",
    )


def _check_pixels(images: Any, mask: Any, name: str) -> None:
  if not _concrete(images, mask):
    return
  real = _valid_rows(images, mask)
  if wrong := int((~np.isfinite(real)).sum()):
    raise UserError(
      name,
      f"{name} has {wrong} values that are no numbers (NaN or infinite), but all"
      " must lie in [0, 1]",
      "look at where the images come from",
    )
  if real.size and not (real.min() >= 0 and real.max() <= 1):
    raise UserError(
      name,
      f"{name} spans [{real.min():g}, {real.max():g}] but must lie in [0, 1]",
      "divide 8-bit values by 255 and let the model normalise",
    )


def _check_dtype(array: Any, name: str) -> None:
  if array.dtype not in (np.float32, np.float64):
    raise UserError(
      name,
      f"{name} is {array.dtype}, which cannot hold steps of a fraction of a grey"
      " level",
      "cast with .astype('float32')",
    )


def _concrete(*arrays: Any) -> bool:
  """Whether all values can be looked at: neither traced nor mere shapes."""
  abstract = Tracer, jax.ShapeDtypeStruct
  return not any(isinstance(a, abstract) for a in arrays)


def _valid_rows(array: Any, mask: Any) -> np.ndarray:
  array = np.asarray(array)
  return array if mask is None else array[np.asarray(mask)]
