"""The flags of a command: made of declared settings, and explained by `--help`.

Every command has flags of its own. A flag of another command is unknown to it.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
import contextlib
import os
from pathlib import Path
import re
import shutil
import textwrap
import typing
from typing import Any

from absl import flags
from absl.flags import FlagValues

from mnemonics_jax import data, registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import (
  Command,
  Declared,
  Settings,
  declared,
  presets,
  resolve,
)
from mnemonics_jax.settings.declare import kind
from mnemonics_jax.settings.settings import READING, defaults

_DEFINE: dict[Any, Any] = {
  bool: flags.DEFINE_bool,
  int: flags.DEFINE_integer,
  float: flags.DEFINE_float,
  str: flags.DEFINE_string,
}


def of_run(*datasets: str, leave_out: Collection[str] = ()) -> FlagValues:
  """The flags of a command that learns one of these data sets.

  Args:
    *datasets: their options are flags, too.
    leave_out: settings without a flag.
  """
  values = FlagValues()
  options = {o for source in data.SOURCES.values() for o in source.options}
  define(values, Settings, leave_out={*leave_out, "data", *options})
  values.set_default("preset", "short")
  define(values, Command, defaults=True, leave_out=leave_out)
  define_options(values, datasets)
  return values


def of_any_run(leave_out: Collection[str] = ()) -> FlagValues:
  """The flags of a command that learns the data set which --dataset names."""
  # A folder needs flags of its own.
  known = [name for name, source in data.SOURCES.items() if source.classes]
  values = of_run(*known, leave_out=leave_out)
  about = "; ".join(f"{name}: {data.SOURCES[name].help}" for name in known)
  text = f"What to learn. {about}."
  flags.DEFINE_enum("dataset", "digits", known, text, flag_values=values)
  return values


def define(
  values: FlagValues,
  group: type[Declared],
  *,
  defaults: bool = False,
  leave_out: Collection[str] = (),
  only: Collection[str] | None = None,
) -> None:
  """Defines a flag for each setting of a class.

  Args:
    values: gets the flags.
    group: the class.
    defaults: whether flags have the defaults of the declarations. Those of a run have
      none: presets decide.
    leave_out: names of settings that get no flag.
    only: names of the settings that get one. The default is all.
  """
  for field in declared(group):
    about, one, name = field.metadata, kind(field), field.name
    wanted = only is None or name in only
    if not about["command"] or name in leave_out or not wanted:
      continue
    text = help_of(field)
    default: Any = field.default if defaults else None
    if typing.get_origin(one) is tuple:
      flags.DEFINE_list(name, default, text, flag_values=values)
    elif about["choices"]:
      names = list(about["choices"])
      flags.DEFINE_enum(name, default, names, text, flag_values=values)
    else:
      _DEFINE[one](name, default, text, flag_values=values)


def define_options(
  values: FlagValues, datasets: Sequence[str], leave_out: Collection[str] = ()
) -> None:
  """Defines a flag for each option of data sets.

  Data sets that share an option explain it in turn.
  """
  known: dict[str, dict[str, list[str]]] = {}
  kinds = {}
  for dataset in datasets:
    for name, option in data.SOURCES[dataset].options.items():
      known.setdefault(name, {}).setdefault(option.help, []).append(dataset)
      kinds[name] = option.kind
  for name, helps in known.items():
    if name in leave_out:
      continue
    words = [
      said if len(who) == len(datasets) else f"{', '.join(who)}: {said}"
      for said, who in helps.items()
    ]
    default = False if kinds[name] is bool else None
    text = f"{'; '.join(words)}."
    _DEFINE[kinds[name]](name, default, text, flag_values=values)


def help_of(field: Any) -> str:
  """The help of a flag: its sentences, then its choices."""
  about = field.metadata
  if not isinstance(about["choices"], dict):
    return about["help"]
  return f"{about['help']} {registry.choices(about['choices'])}."


def given(values: FlagValues, group: type[Declared]) -> dict[str, Any]:
  """The settings of a class for which a flag was given, lists as whole numbers.

  The data set and the preset, which others start from, are not among them.
  """
  found = {}
  for field in declared(group):
    name = field.name
    if name in ("dataset", "preset") or name not in values:
      continue
    if values[name].present:
      value = values[name].value
      found[name] = (
        as_numbers(name, value) if isinstance(value, list) else value
      )
  return dict(sorted(found.items()))  # Names of tables depend on the order.


def settings(values: FlagValues, dataset: str) -> Settings:
  """The preset of a data set, overridden by every flag that was given."""
  return resolve(dataset, values.preset, given(values, Settings))


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


def value_of(values: FlagValues, name: str) -> Any:
  """The value of a flag; None if the command does not have it."""
  return values[name].value if name in values else None


def path(text: str | Path) -> Path:
  """A path on a command line; ~ is the user's directory."""
  return Path(os.path.expanduser(text))


def check_directory(flag: str, path: Path) -> None:
  """Refuses a path that is no directory and cannot be made one."""
  try:
    nearest = next(
      part for part in (path, *path.absolute().parents) if part.exists()
    )
    if not nearest.is_dir():
      problem = f"{nearest} is not a directory"
    elif not os.access(nearest, os.W_OK | os.X_OK):
      problem = f"{nearest} may not be written"
    else:
      return
  except OSError as error:
    problem = error.strerror
  raise UserError(
    flag, f"`{flag}={path}` cannot be used ({problem})", "choose another one"
  )


def parse(
  values: FlagValues,
  argv: Sequence[str],
  instead: Mapping[str, str] | None = None,
) -> list[str]:
  """Reads a command line; returns its arguments that are not flags.

  Args:
    values: gets what the flags say.
    argv: the command line, its name first.
    instead: what to do instead of giving a flag that only other commands have.
  """
  try:
    rest = values([*argv])
  except flags.UnrecognizedFlagError as error:
    name = error.flagname
    other = next(
      (n for n in (name, name.removeprefix("no")) if n in (instead or {})), None
    )
    if instead and other is not None:
      problem = f"--{other} has no effect here"
      raise UserError(other, problem, instead[other]) from None
    near = re.findall(r"[\w-]+", str(error).partition("Did you mean:")[2])
    fix = (
      f"try {', '.join(f'--{one}' for one in near if one != 'or')}; "
      * bool(near)
    )
    raise UserError(
      name,
      f"--{name} is not a flag of this command",
      f"{fix}--help lists all flags",
    ) from None
  except (flags.Error, ValueError) as error:
    raise _explained(error, values) from None
  for name in values:
    if values[name].present and values[name].value == "":
      raise UserError(
        name, f"--{name} is empty", "give it a value or leave it out"
      )
  return rest[1:]


def _explained(error, values):
  """absl's complaint with the remedy for this kind of flag."""
  found = re.match(r"flag --(\w+)=(.*?): ", str(error), re.DOTALL)
  if found is None:
    return UserError("flags", str(error).rstrip("."), "--help lists all flags")
  name, value = found.groups()
  choices = getattr(values[name].parser, "enum_values", ())
  fix = {
    "bool": f"write --{name} or --no{name}",
    "int": "give a whole number",
    "float": "give a number",
  }.get(values[name].flag_type(), f"choose one of {', '.join(choices)}")
  return UserError(name, f"--{name}={value} cannot be used", fix)


# Settings of the library whose flag has another name.
_FLAG_OF = {
  "data_dir": "data",
  "every": "checkpoint_every",
  "network": "net",
}


def in_flags(message: str, values: FlagValues) -> str:
  """Writes settings in a message as flags: `memory=total:5` as --memory=total:5.

  Other text in backticks stays as it is.
  """

  def as_flag(found: re.Match[str]) -> str:
    name, value = found[1], found[2] or ""
    if name not in values:
      name = _FLAG_OF.get(name, name)
    is_flag = name in values or name.removeprefix("no") in values
    return f"--{name}{value}" if is_flag else found[0]

  return re.sub(r"`([a-z_]+)(=[^`]*)?`", as_flag, message)


# What `--help` shows.

_INDENT = " " * 4


def asks_for_help(arguments: Iterable[str]) -> bool:
  """Whether a command line asks for help."""
  return any(
    one in ("-h", "-help", "--help", "--helpfull") for one in arguments
  )


def help_text(
  doc: str,
  values: FlagValues,
  argv: Sequence[str],
  presets_of: str | None,
  width: int | None = None,
) -> str:
  """What a command does, and its flags by purpose.

  A flag is shown with the value that it has if it is not given: that of the chosen
  preset, beside those that are given.

  Args:
    doc: what the command says of itself.
    values: its flags.
    argv: the command line that asks.
    presets_of: the data set whose presets are shown, unless --dataset names another.
    width: of a line; by default the terminal's.
  """
  rest = [one for one in argv if not asks_for_help([one])]
  with contextlib.suppress(flags.Error, ValueError):
    values(rest, known_only=True)
  values.mark_as_parsed()
  width = width or min(shutil.get_terminal_size().columns, 100)
  usual = _usual(values, presets_of)
  parts = [doc.strip()]
  for title, names in _by_purpose(values).items():
    entries = [_entry(values[name], usual, width) for name in names]
    parts.append("\n".join([f"{title}:", *entries]))
  return "\n\n".join(parts) + "\n"


def _by_purpose(values):
  """Flags by the headings of their settings; those of one command come first."""
  fields = [*declared(Settings), *declared(Command)]
  # First what only a run has, such as its method; then what the Learner has, too.
  fields.sort(key=lambda field: field.name not in Settings.__annotations__)
  purposes = {field.name: field.metadata["group"] for field in fields}
  for source in data.SOURCES.values():
    purposes |= dict.fromkeys(source.options, READING)
  groups = {"This command": sorted({*values} - {*purposes})}
  for name, title in purposes.items():
    if name in values:
      groups.setdefault(title, []).append(name)
  return {title: names for title, names in groups.items() if names}


def _usual(values, presets_of):
  """The values of settings that no flag gives."""
  if presets_of is None:
    return {}
  chosen = {n: values[n].value for n in values if values[n].value is not None}
  dataset = chosen.get("dataset", presets_of)
  return defaults() | presets.values(dataset, chosen["preset"], chosen)


def _entry(flag, usual, width):
  value = flag.value if flag.value is not None else usual.get(flag.name)
  name = f"--{flag.name}"
  if flag.boolean:
    state = {True: " (on)", False: " (off)"}.get(value, "")
    name = f"--[no]{flag.name}{state}"
  elif value is not None:
    name += f"={_written(value)}"
  help_text = " ".join((flag.help or "").split())
  lines = textwrap.wrap(
    help_text, width, initial_indent=_INDENT, subsequent_indent=_INDENT
  )
  return "\n".join([f"  {name}", *lines])


def _written(value):
  if isinstance(value, (tuple, list)):
    return ",".join(map(str, value))
  return f"{value:g}" if isinstance(value, float) else str(value)
