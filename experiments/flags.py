"""absl flags, made of declared settings."""

from collections.abc import Collection, Iterable
import typing
from typing import Any

from absl import flags

from mnemonics_jax import data, registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Declared, declared
from mnemonics_jax.settings.declare import kind

_DEFINE: dict[Any, Any] = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
}


def define(
  values: flags.FlagValues,
  group: type[Declared],
  *,
  defaults: bool = False,
  leave_out: Collection[str] = (),
) -> None:
  """Defines a flag for each setting of a class.

  Args:
    values: gets the flags.
    group: the class.
    defaults: whether flags have the defaults of the declarations. Those of a run have
      none: presets decide.
    leave_out: names of settings that get no flag.
  """
  for field in declared(group):
    about, one = field.metadata, kind(field)
    if not about["command"] or field.name in leave_out:
      continue
    name, text = field.name, help_of(field)
    default: Any = field.default if defaults else None
    if typing.get_origin(one) is tuple:
      flags.DEFINE_list(name, default, text, flag_values=values)
    elif about["choices"]:
      names = list(about["choices"])
      flags.DEFINE_enum(name, default, names, text, flag_values=values)
    else:
      _DEFINE[one](name, default, text, flag_values=values)


def define_options(values: flags.FlagValues, datasets: Iterable[str]) -> None:
  """Defines a flag for each option of data sets that is no setting of a run.

  Data sets that share an option explain it in turn.
  """
  known: dict[str, dict[str, list[str]]] = {}
  kinds = {}
  for dataset in datasets:
    for name, option in data.SOURCES[dataset].options.items():
      known.setdefault(name, {}).setdefault(option.help, []).append(dataset)
      kinds[name] = option.kind
  for name, helps in known.items():
    if name not in values:
      text = "; ".join(
        f"{', '.join(who)}: {said}" for said, who in helps.items()
      )
      default = False if kinds[name] is bool else None
      _DEFINE[kinds[name]](name, default, f"{text}.", flag_values=values)


def help_of(field: Any) -> str:
  """The help of a flag: its sentences, then its choices."""
  about = field.metadata
  if not isinstance(about["choices"], dict):
    return about["help"]
  return f"{about['help']} {registry.choices(about['choices'])}."


def given(values: flags.FlagValues, group: type[Declared]) -> dict[str, Any]:
  """The settings of a class for which a flag was given, lists as whole numbers."""
  found = {}
  for field in declared(group):
    name = field.name
    if name not in values or not values[name].present:
      continue
    value = values[name].value
    found[name] = as_numbers(name, value) if isinstance(value, list) else value
  return dict(sorted(found.items()))  # Names of tables depend on the order.


def as_numbers(name: str, words: Iterable[str]) -> tuple[int, ...]:
  """Whole numbers of a list on a command line."""
  words = [*words]
  try:
    return tuple(map(int, words))
  except ValueError:
    raise UserError(
      name,
      f"`{name}={','.join(words)}` is not a list of whole numbers",
      f"write `{name}=0,1,2`",
    ) from None
