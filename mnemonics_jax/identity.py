"""Configurations as JSON under stable names, and the hashes made of them.

Equal configurations have equal identities in every process. A field that does not
change the result stays out of them:

  remat: bool = dataclasses.field(default=False, metadata={"identity": False})
"""

import dataclasses
import hashlib
import importlib
import json
import sys
from typing import Any

import numpy as np

# Fields that flax adds to every module: they tell where it hangs, not what it is.
_OF_FLAX = ("parent", "name")

# Files contain the name under which a class was first written. A class that moves
# gets a line here, {first name: where it is now}, and keeps that name for ever.
_MOVED: dict[str, str] = {
  "mnemonics_jax.methods.icarl.ICaRL": "mnemonics_jax.methods.lwf.ICaRL",
  "mnemonics_jax.methods.icarl.ICaRLBCE": "mnemonics_jax.methods.lwf.ICaRLBCE",
  "mnemonics_jax.methods.joint.Joint": "mnemonics_jax.methods.base.Joint",
  "mnemonics_jax.nn.batch_norm.BatchNorm": "mnemonics_jax.nn.layers.BatchNorm",
  "mnemonics_jax.nn.jpeg.JpegLoss": "mnemonics_jax.nn.pixels.JpegLoss",
  "mnemonics_jax.nn.networks.Conv": "mnemonics_jax.nn.layers.Conv",
  "mnemonics_jax.phase.schedule.Schedule": "mnemonics_jax.phase.config.Schedule",
  "mnemonics_jax.phase.sizes.OpenShape": "mnemonics_jax.phase.config.OpenShape",
}


def identity(value: Any) -> Any:
  """A configuration as nested lists, dicts, numbers and strings.

  Equal for equal values only: classes are given with their modules, fields with
  their names. Code is no part of it: a class that computes something else under its
  old name keeps its identity.

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
  is_module = _is_module(value)
  if not is_module and not _is_frozen(value):
    raise TypeError(
      f"{value!r} has no identity: it is a {type(value).__name__}. Describe it by a"
      " frozen dataclass (a callable one instead of a function)."
    )
  names = [
    field.name
    for field in dataclasses.fields(value)
    if field.metadata.get("identity", True)
    and not (is_module and field.name in _OF_FLAX)
  ]
  return _named(value, names)


def _is_module(value):
  # Without flax there are no modules: commands that need none do not wait for it.
  linen = sys.modules.get("flax.linen")
  return linen is not None and isinstance(value, linen.Module)


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
  """The configuration with this identity; lists become tuples.

  Args:
    description: made by `identity`, perhaps read from JSON. Only classes of this
      package are made from it.

  Raises:
    LookupError: it names something else, or a class has other fields by now.
  """
  if isinstance(description, list):
    return tuple(map(restore, description))
  if not isinstance(description, dict):
    return description
  name = description.get("class")
  cls = _class(name)
  if not (isinstance(cls, type) and hasattr(cls, "__match_args__")):
    raise LookupError(name)
  fields = description.get("fields", {})
  try:
    return cls(**{key: restore(part) for key, part in fields.items()})
  except TypeError:  # Fields of another version.
    raise LookupError(name) from None


def _class(name):
  """The object of this package that has, or first had, this name; else None."""
  module, _, last = _MOVED.get(str(name), str(name)).rpartition(".")
  if module.partition(".")[0] != __name__.partition(".")[0]:
    return None
  try:
    return getattr(importlib.import_module(module), last, None)
  except ImportError:
    return None


def digest(*parts: Any, sort_keys: bool = False) -> str:
  """SHA-256 of JSON values and arrays, one after the other.

  The names of runs, work directories and base models are such hashes. They are
  stable as long as the parts are: their order, and that of the keys in a dict,
  counts.

  >>> digest({"epochs": 2})[:8], digest({"epochs": 3})[:8]
  ('63b46a19', '543da7ab')

  Args:
    *parts: arrays, hashed by their bytes, or values that JSON can hold.
    sort_keys: whether the order of the keys in a dict does not count.
  """
  whole = hashlib.sha256()
  for part in parts:
    if hasattr(part, "dtype"):
      whole.update(np.ascontiguousarray(part).data.cast("B"))
    else:
      whole.update(json.dumps(part, sort_keys=sort_keys).encode())
  return whole.hexdigest()
