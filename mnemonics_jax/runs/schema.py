"""The shape of a JSON value, and the first place where a value differs from it.

A shape is written as the value is:

  str, int, NUMBER    a value of that type
  [shape]             a list of at least one value of that shape
  {"name": shape}     an object with these fields, and perhaps others
  Each(shape)         an object with any names and values of that shape
  Maybe(shape)        a field that may be left out
  OrNull(shape)       that shape, or null
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

NUMBER = int | float


class Each(NamedTuple):
  """An object with any names, whose values have one shape."""

  shape: Any


class Maybe(NamedTuple):
  """A field that may be left out."""

  shape: Any


class OrNull(NamedTuple):
  """A value that may be null."""

  shape: Any


def mismatch(value: Any, shape: Any, where: str = "") -> str:
  """The first place where `value` does not have the shape, in words, or "".

  Args:
    value: as `json.loads` returns it.
    shape: what it should look like.
    where: the place of `value` in a larger one, such as `runs[0].seed`.

  Example:
    >>> mismatch({"seed": 0, "runs": [1, "2"]}, {"seed": int, "runs": [int]})
    'runs[1] has a wrong type'
  """
  return next(_mismatches(value, shape, where), "")


def _mismatches(value: Any, shape: Any, where: str) -> Iterator[str]:
  match shape:
    case Maybe(inner):
      yield from _mismatches(value, inner, where)
    case OrNull(inner):
      if value is not None:
        yield from _mismatches(value, inner, where)
    case list([inner]):
      if not isinstance(value, list) or not value:
        yield f"{where} should be a list with at least one entry"
        return
      for index, entry in enumerate(value):
        yield from _mismatches(entry, inner, f"{where}[{index}]")
    case Each() | dict():
      if not isinstance(value, dict):
        yield f"{where or 'it'} should be an object"
        return
      if isinstance(shape, Each):
        shape = dict.fromkeys(value, shape.shape)
      for name, inner in shape.items():
        if name in value:
          place = f"{where}.{name}" if where else name
          yield from _mismatches(value[name], inner, place)
        elif not isinstance(inner, Maybe):
          yield f"{where} lacks {name}".lstrip()
    case _:
      if not isinstance(value, shape):
        yield f"{where} has a wrong type"
