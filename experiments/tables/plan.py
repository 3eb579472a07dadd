"""A table of one's own: a file says what is compared, and why, before it is run.

  title: How often old exemplars are drawn
  question: Does it help to draw them more often?
  decision: What becomes of it, and by which rule.
  dataset: cifar100
  preset: short
  phases: [5]
  seeds: [0, 1, 2]
  settings: {exemplars: herding}       # Of all rows, as flags have them.
  rows:
    once: {settings: {rehearsal: once}}
    four: {label: four times, settings: {rehearsal: 4}, minus: [once]}

What is measured is written beside the plan.
"""

from collections.abc import Mapping
import dataclasses
from pathlib import Path
from typing import Any

from experiments import flags
from experiments.tables.rows import Row
from mnemonics_jax import data
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs.layout import Each, Maybe, mismatch
from mnemonics_jax.settings import Settings, presets

# A plan says settings as a command line would.
_FLAGS = flags.of_any_run()
_NO_SETTINGS = {"dataset", "preset", "phases", "seeds"}

_FIELDS = {
  "title": str,
  "question": str,
  "decision": str,
  "dataset": str,
  "preset": str,
  "phases": [int],
  "seeds": [int],
  "settings": {},
  "rows": Each({"settings": {}, "label": Maybe(str), "minus": Maybe([str])}),
}


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is compared.

  Attributes:
    path: of the file.
    title: of the table.
    question: that it answers.
    decision: the rule by which.
    dataset: name of the data set.
    preset: name of the preset.
    phases: every N.
    seeds: every seed.
    settings: of all rows.
    rows: in order.
  """

  path: Path
  title: str
  question: str
  decision: str
  dataset: str
  preset: str
  phases: tuple[int, ...]
  seeds: tuple[int, ...]
  settings: Mapping[str, Any]
  rows: tuple[Row, ...]


def load(path: str | Path) -> Plan:
  """A plan, checked."""
  path = Path(path).expanduser()
  found = _read(path)
  if lack := mismatch(found, _FIELDS):
    raise _error(path, lack)
  if other := sorted(found.keys() - _FIELDS.keys()):
    raise _error(path, f"{other[0]} is not known")
  if not found["rows"]:
    raise _error(path, "it has no rows")
  for name in ("dataset", "preset"):
    _parsed(path, name, found[name])
  common = _settings(path, found["settings"])
  rows = [_row(path, name, row, common) for name, row in found["rows"].items()]
  names = {row.name for row in rows}
  for row in rows:
    if other := sorted({*row.references} - names):
      raise _error(
        path, f"row {row.name} is compared with {other[0]}, which is none"
      )
    _check_data(path, row, data.SOURCES[found["dataset"]])
    of, given = (found["dataset"], found["preset"]), {**common, **row.fixed}
    settings = Settings(*of, **(presets.values(*of, given) | given))
    settings.refuse_idle(
      {*row.fixed, "image_size", "val_fraction"} & given.keys()
    )
  return Plan(
    path,
    **{name: found[name].strip() for name in ("title", "question", "decision")},
    dataset=found["dataset"],
    preset=found["preset"],
    phases=tuple(found["phases"]),
    seeds=tuple(found["seeds"]),
    settings=common,
    rows=tuple(rows),
  )


def _read(path):
  import yaml

  try:
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
  except OSError as error:
    raise _error(path, error.strerror or str(error)) from None
  except (yaml.YAMLError, UnicodeDecodeError) as error:
    raise _error(path, str(error).splitlines()[0]) from None
  if not isinstance(found, dict):
    raise _error(path, "it has no fields")
  return found


def _row(path, name, row, common):
  if other := sorted(row.keys() - _FIELDS["rows"].shape.keys()):
    raise _error(path, f"row {name}: {other[0]} is not known")
  return Row(
    name,
    row.get("label", name),
    {
      "method": common.get("method", Settings.method),
      **_settings(path, row["settings"]),
    },
    references=tuple(row.get("minus", ())),
  )


def _check_data(path, row, source):
  if of_data := sorted(row.fixed.keys() & source.options.keys()):
    raise _error(
      path,
      f"row {row.name}: {of_data[0]} is of the data, which are loaded once for all"
      " rows",
      "put it into the plan's own settings",
    )


def _settings(path, given):
  """Settings as flags of the same names would give them."""
  fields = {field.name for field in dataclasses.fields(Settings)}
  if other := sorted({*given} - (fields & {*_FLAGS} - _NO_SETTINGS)):
    raise _error(path, f"{other[0]} is no setting of a row")
  return {name: _parsed(path, name, value) for name, value in given.items()}


def _parsed(path, name, value):
  try:
    return _FLAGS[name].parser.parse(str(value))
  except ValueError as error:
    raise _error(path, f"{name}: {error}") from None


def _error(path, problem, fix="results/studies has examples"):
  return UserError("plan", f"`plan={path}` cannot be used ({problem})", fix)
