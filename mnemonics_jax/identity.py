"""What a configuration is, as JSON: the key of whatever was made with it.

Equal configurations have equal identities, whatever the process. A field that
does not change the result stays out of them:

  remat: bool = dataclasses.field(default=False, metadata={"identity": False})
"""

import dataclasses
import importlib
from typing import Any

from flax import linen as nn

# What flax adds to the fields of every module: where it hangs, not what it is.
_OF_FLAX = ("parent", "name")

# Files hold the name under which a class was first written. A class that moves gets
# a line here, {first name: where it is now}, and keeps that name for ever.
_MOVED: dict[str, str] = {
  "mnemonics_jax.nn.batch_norm.BatchNorm": "mnemonics_jax.nn.layers.BatchNorm",
  "mnemonics_jax.nn.jpeg.JpegLoss": "mnemonics_jax.nn.pixels.JpegLoss",
  "mnemonics_jax.nn.networks.Conv": "mnemonics_jax.nn.layers.Conv",
  "mnemonics_jax.phase.schedule.Schedule": "mnemonics_jax.phase.config.Schedule",
  "mnemonics_jax.phase.sizes.OpenShape": "mnemonics_jax.phase.config.OpenShape",
}


def identity(value: Any) -> Any:
  """A configuration as nested lists, dicts, numbers and strings.

  Equal for equal values only: classes are given with their modules, fields with
  their names. Code is not part of it: a class that computes something else
  under its old name keeps its identity.

  >>> from mnemonics_jax.nn.heads import CosineHead
  >>> identity((CosineHead(sigma=4.0), "head"))
  [{'class': 'mnemonics_jax.nn.heads.CosineHead', 'fields': {'sigma': 4.0}}, 'head']

  Args:
    value: a frozen dataclass, a linen module, a tuple, a number, a string, a
      bool, None, or any of these within each other.

  Raises:
    TypeError: if a part is anything else, such as a function or an array.
  """
  if value is None or isinstance(value, bool | int | float | str):
    return value
  if isinstance(value, tuple):
    if names := getattr(value, "_fields", ()):
      return _named(value, names)
    return [identity(part) for part in value]
  if isinstance(value, nn.Module) or _is_frozen(value):
    names = [
      field.name
      for field in dataclasses.fields(value)  # pyright: ignore[reportArgumentType]
      if field.metadata.get("identity", True)
      and not (isinstance(value, nn.Module) and field.name in _OF_FLAX)
    ]
    return _named(value, names)
  raise TypeError(
    f"{value!r} has no identity: it is a {type(value).__name__}. Describe it by a"
    " frozen dataclass (a callable one instead of a function)."
  )


def _is_frozen(value):
  params = getattr(type(value), "__dataclass_params__", None)
  return params is not None and params.frozen


def _named(value, names):
  """The class and the fields of these names."""
  cls = type(value)
  place = f"{cls.__module__}.{cls.__qualname__}"
  first = {now: then for then, now in _MOVED.items()}.get(place, place)
  fields = {name: identity(getattr(value, name)) for name in names}
  return {"class": first, "fields": fields}


def restore(description: Any) -> Any:
  """The configuration whose identity this is; lists become tuples.

  >>> from mnemonics_jax.nn.heads import CosineHead
  >>> restore(identity((CosineHead(sigma=4.0), "head")))
  (CosineHead(sigma=4.0), 'head')

  Args:
    description: of `identity`, perhaps by way of JSON. Only classes of this
      package are made from it.

  Raises:
    LookupError: it names something else, or a class has other fields by now.
  """
  if isinstance(description, list):
    return tuple(map(restore, description))
  if not isinstance(description, dict):
    return description
  known = description.get("class")
  module, _, name = _MOVED.get(str(known), str(known)).rpartition(".")
  if module.partition(".")[0] != __name__.partition(".")[0]:
    raise LookupError(known)
  try:
    cls = getattr(importlib.import_module(module), name, None)
  except ImportError:
    raise LookupError(known) from None
  if not (isinstance(cls, type) and hasattr(cls, "__match_args__")):
    raise LookupError(known)
  parts = description.get("fields", {})
  try:
    return cls(**{key: restore(part) for key, part in parts.items()})
  except TypeError:  # Fields of another version.
    raise LookupError(known) from None
