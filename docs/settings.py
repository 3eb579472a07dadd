"""Prints the page of all settings, made of their declarations.

  python docs/settings.py

`make docs` adds the page to the site.
"""

from collections.abc import Iterable, Sequence
import dataclasses
from typing import Any

from mnemonics_jax import data, registry
from mnemonics_jax.settings import Command, Settings, declared, presets
from mnemonics_jax.settings.declare import allowed, kind

_INTRODUCTION = """\
# All settings

What can be set, and to what? Each setting is a flag of the commands that learn, such as
`--epochs=10`. `Learner` takes many of them as keywords. A preset replaces the defaults.
"""


def page() -> str:
  """The page: a table for each group of settings, then the presets."""
  groups: dict[str, list[dataclasses.Field]] = {}
  for field in (*declared(Settings), *declared(Command)):
    groups.setdefault(field.metadata["group"], []).append(field)
  parts = [_INTRODUCTION.strip()]
  for title, fields in groups.items():
    rows = (_row(f) for f in fields if f.metadata["help"])
    header = "setting", "default", "values", "what it does"
    parts.append(f"## {title}\n\n{_table(header, rows)}")
  parts.append("## Presets\n\nA cell is empty where the default holds.")
  parts += [
    f"### {source.title}\n\n{_presets(name)}"
    for name, source in data.SOURCES.items()
  ]
  return "\n\n".join(parts) + "\n"


def _row(field: dataclasses.Field) -> tuple[str, ...]:
  choices = field.metadata["choices"]
  if isinstance(choices, dict):
    values = registry.choices(choices)
  elif choices:
    values = ", ".join(choices)
  else:
    values = allowed(field) if kind(field) in (int, float) else ""
  name, about = f"`{field.name}`", field.metadata["help"]
  return name, _written(field.default), values, about


def _presets(dataset: str) -> str:
  found = presets.of(dataset)
  chosen = {name for values in found.values() for name in values}
  rows = (
    (
      f"`{f.name}`",
      *(_written(values.get(f.name)) for values in found.values()),
    )
    for f in declared(Settings)
    if f.name in chosen
  )
  return _table(("setting", *found), rows)


def _written(value: Any) -> str:
  if value is None or value is dataclasses.MISSING:
    return ""
  if isinstance(value, bool):
    return "on" if value else "off"
  if isinstance(value, tuple):
    return ", ".join(map(_written, value))
  return f"{value:.3g}" if isinstance(value, float) else str(value)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
  """A Markdown table."""
  lines = [header, ["---"] * len(header), *rows]
  escaped = ([cell.replace("|", "\\|") for cell in line] for line in lines)
  return "\n".join(f"| {' | '.join(line)} |" for line in escaped)


if __name__ == "__main__":
  print(page(), end="")
