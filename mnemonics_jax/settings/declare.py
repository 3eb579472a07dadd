"""How a setting is declared, and what follows from its declaration.

A setting is a field of a frozen dataclass. Its flag, `--help`, checks, effect,
identity and row in the documentation are derived from the field.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
import dataclasses
import functools
import json
import math
import numbers as number_types
import operator
import types
import typing
from typing import Any, TypeVar

from mnemonics_jax.data.sources import title_of
from mnemonics_jax.errors import UserError

T = TypeVar("T")


Needs = Mapping[str, Any]
"""By name of a setting: a value, a tuple of values, or a function of the value."""


def unless(*values: Any) -> Callable[[Any], bool]:
  """Any value but these: `needs=dict(method=unless("joint"))`."""
  return lambda value: value not in values


def setting(
  group: str,
  default: Any = dataclasses.MISSING,
  help: str = "",
  *,
  choices: Collection[str] | None = None,
  least: float | None = None,
  most: float | None = None,
  above: float | None = None,
  below: float | None = None,
  check: Callable[[Any], Any] | None = None,
  needs: Needs | Sequence[Needs] = (),
  numbers: bool = True,
  always_named: bool = False,
  canonical: Callable[[Any, Any], Any] | None = None,
  yields_to: Sequence[str] = (),
  to: str | Sequence[str] = (),
  command: bool = True,
  positional: bool = False,
) -> Any:
  """Declares a setting; the annotation of the field is its type.

  Args:
    group: heading in `--help`.
    default: value where neither the user nor a preset gives one.
    help: one or two sentences, for `--help` and the documentation.
    choices: allowed names; a mapping also tells what each means.
    least: smallest number allowed.
    most: largest number allowed.
    above: numbers must be larger than this.
    below: numbers must be smaller than this.
    check: raises a `UserError` for values that cannot be used.
    needs: values of other settings without which this one has no effect, or several
      such sets of which one is enough. Asking for a setting without effect is an
      error, and the setting is left out of the identity of a run.
    numbers: whether it can change a result; if not, it is not in the identity.
    always_named: whether the identity has it even where it has no effect.
    canonical: (settings, value) -> the value to store in the identity.
    yields_to: settings that, when given, cancel the preset's value of this one.
    to: where the value goes in the library, such as `train.epochs`.
    command: whether it is a flag.
    positional: whether it may be given without its name.
  """
  about = dict(locals())
  del about["default"], about["positional"]
  about["needs"] = [needs] if isinstance(needs, Mapping) else [*needs]
  about["to"] = [to] if isinstance(to, str) else [*to]
  about["identity"] = numbers  # For `identity.identity`.
  return dataclasses.field(
    default=default,
    metadata=types.MappingProxyType(about),
    kw_only=not positional,
  )


def redefault(
  declared: Any, name: str, default: Any, *, positional: bool = False
) -> Any:
  """The declaration of another class, with a default of its own."""
  metadata = declared.__dataclass_fields__[name].metadata
  return dataclasses.field(
    default=default, metadata=metadata, kw_only=not positional
  )


def optional(group: type) -> Callable[[type[T]], type[T]]:
  """Adds the settings of a class as keywords that are None unless they are given.

  Stands below `dataclass`. The class need not inherit from `group`, whose settings
  would come first.
  """

  def add(cls: type[T]) -> type[T]:
    for field in declared(group):
      if field.name not in cls.__annotations__:
        kind_: Any = field.type
        cls.__annotations__[field.name] = kind_ | None
        about = types.MappingProxyType({**field.metadata, "identity": True})
        given = dataclasses.field(default=None, metadata=about, kw_only=True)
        setattr(cls, field.name, given)
    return cls

  return add


def declared(cls: Any) -> Iterator[dataclasses.Field]:
  """The settings among the fields of a class, or of a value."""
  return (
    field for field in dataclasses.fields(cls) if "group" in field.metadata
  )


def kind(field: dataclasses.Field) -> Any:
  """The type of a setting that is given: `int` for `int | None`."""
  parts = [
    part for part in typing.get_args(field.type) if part is not type(None)
  ]
  is_union = isinstance(field.type, types.UnionType)
  return parts[0] if is_union else field.type


@dataclasses.dataclass(frozen=True, kw_only=True)
class Declared:
  """Base of classes whose fields are settings: checks values on creation."""

  def __post_init__(self):
    for field in declared(self):
      check(field, getattr(self, field.name))

  @classmethod
  def check_value(cls, name: str, value: Any) -> None:
    """Refuses a value that one of its settings cannot have."""
    check(cls.__dataclass_fields__[name], value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Complete(Declared):
  """Settings with all others that decide whether they have an effect."""

  @functools.cached_property
  def idle(self) -> dict[str, str]:
    """Settings without effect, and the values of others that make them so."""
    reasons: dict[str, str] = {}
    fields, looked_at = self.__dataclass_fields__, set()

    def effective(name: str) -> Any:
      """Its value, or its default if it has no effect."""
      if name not in looked_at:
        looked_at.add(name)
        if reason := missing(fields[name]):
          reasons[name] = reason
      return fields[name].default if name in reasons else getattr(self, name)

    def missing(field: dataclasses.Field) -> str:
      """Why none of its `needs` is met; "" if one is, or there are none."""
      lacks = [
        [n for n, want in need.items() if not fits(effective(n), want)]
        for need in field.metadata["needs"]
      ]
      if not lacks or [] in lacks:
        return ""
      names = dict.fromkeys(name for lack in lacks for name in lack)
      said = (reasons.get(n) or _said(n, getattr(self, n)) for n in names)
      return " and ".join(dict.fromkeys(said))

    for field in declared(self):
      effective(field.name)
    return reasons

  def refuse_idle(self, given: Collection[str]) -> None:
    """Refuses settings that were given but have no effect.

    Args:
      given: names of the settings that the user has chosen.
    """
    for name, reason in self.idle.items():
      default = self.__dataclass_fields__[name].default
      # What is switched off is only redundant. 0 equals False.
      is_off = default in (False, "none", "once") and default == getattr(
        self, name
      )
      if name in given and not is_off:
        raise UserError(
          name, f"`{name}` has no effect with {reason}", "leave out one of them"
        )

  def identity(self) -> dict[str, Any]:
    """All that decides the results, as JSON values: equal for equal results.

    Settings without effect have their defaults.
    """
    values = {}
    for field in declared(self):
      about, value = field.metadata, getattr(self, field.name)
      if not about["numbers"]:
        continue
      if field.name in self.idle and not about["always_named"]:
        value = field.default
      elif about["canonical"]:
        value = about["canonical"](self, value)
      values[field.name] = value
    return json.loads(json.dumps(values))

  def parts(self) -> dict[str, dict[str, Any]]:
    """The values by where they go: {"train": {"epochs": 10, ...}, ...}."""
    parts: dict[str, dict[str, Any]] = {}
    for field in declared(self):
      value = getattr(self, field.name)
      for place in field.metadata["to"] if value is not None else ():
        part, _, name = place.partition(".")
        parts.setdefault(part, {})[name or field.name] = value
    return parts


def check(field: dataclasses.Field, value: Any) -> None:
  """Refuses a value that a setting cannot have."""
  about, name = field.metadata, field.name
  if value is None and types.NoneType in typing.get_args(field.type):
    return
  one = _one(field)
  values = value if isinstance(value, tuple) else (value,)
  for value_ in values:
    if about["choices"] and value_ not in about["choices"]:
      raise UserError(
        name,
        f"`{name}={value_}` is not known",
        f"choose one of {', '.join(about['choices'])}",
      )
    if one in _WORDS and not (_is(value_, one) and _in_range(about, value_)):
      raise UserError(
        name,
        f"`{name}={value_}` cannot be used",
        f"it must be {allowed(field)}",
      )
  if about["check"]:
    about["check"](value)


_WORDS = {
  bool: "True or False", int: "a whole number", float: "a number", str: "text"
}  # fmt: skip


_BOUNDS = {
  "least": operator.ge, "most": operator.le, "above": operator.gt, "below": operator.lt
}  # fmt: skip


def _is(value, wanted):
  if wanted is bool or wanted is str:
    return isinstance(value, wanted)
  number = number_types.Integral if wanted is int else number_types.Real
  return isinstance(value, number) and not isinstance(value, bool)


def _in_range(about, value):
  if isinstance(value, bool | str):
    return True
  return math.isfinite(value) and all(
    about[name] is None or holds(value, about[name])
    for name, holds in _BOUNDS.items()
  )


def _one(field):
  """The type of a value, or of each value if there are several."""
  one = kind(field)
  return typing.get_args(one)[0] if typing.get_origin(one) is tuple else one


def allowed(field: dataclasses.Field) -> str:
  """The values of a setting in words, such as `a whole number from 1 to 15`."""
  least, most, above, below = (field.metadata[name] for name in _BOUNDS)
  word = _WORDS[_one(field)]
  if above == 0 and below is None:
    return "a positive number"
  if above is not None:
    return f"{word} between {above} and {below}"
  if least is None:
    return word
  return (
    f"{word}, {least} or more"
    if most is None
    else f"{word} from {least} to {most}"
  )


def fits(value: Any, want: Any) -> bool:
  """Whether a value is one of those that `needs` names.

  >>> fits("lwf", unless("joint")), fits("lwf", ("bic", "lwf")), fits(True, False)
  (True, True, False)
  """
  if callable(want):
    return bool(want(value))
  return value in want if isinstance(want, tuple) else value == want


def _said(name, value):
  if name == "dataset":
    return title_of(value)
  if isinstance(value, bool):
    return f"`{name}`" if value else f"`no{name}`"
  return f"`{name}={value}`"
