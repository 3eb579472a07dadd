"""A table: the rows it compares, and which of its cells a command asks for.

A file says what is compared. The paper's tables stand beside this module; a study is a
file of one's own, which also says why, and by which rule its result is used:

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

The files of a study are written beside it. Of a table of the paper flags decide the data
set, the preset, phases, seeds and further settings.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import hashlib
import itertools
from pathlib import Path
from typing import Any

from absl import flags as absl_flags
from absl.flags import FlagValues

from experiments import flags, running
from experiments.tables import published
from mnemonics_jax import data
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs.layout import Each, Maybe, mismatch
from mnemonics_jax.settings import Settings, presets

PAPERS = ("1", "2", "s1", "s2")
UPPER_BOUND = "joint"

# Flags of a run that a table does not have, and what decides instead.
DECIDED = {
  "method": "the rows decide it; choose them with --rows",
  "exemplars": "the rows decide it; choose them with --rows",
  "adjust": "the rows decide it; choose them with --rows",
  "workdir": "every cell has a directory of its own; use --root",
  "fresh": "start over with another --root",
  "base_models": "cells share them below --root; use --root",
}

# What a study may say. In a table of the paper a row also names its row in
# `paper_tables.yaml`; with `stages: baseline` it has the stages of a baseline, otherwise
# those of mnemonics. `rows` may be those of another table.
_ROW = {"settings": {}, "label": Maybe(str), "minus": Maybe([str])}
_STUDY = {
  **dict.fromkeys(("title", "question", "decision", "dataset", "preset"), str),
  **{"phases": [int], "seeds": [int]},
  **{"settings": {}, "rows": Each(_ROW)},
}

# Of settings in a file name; systems allow 255 characters in all.
_LONGEST = 120


def define_flags() -> FlagValues:
  """The flags of a table."""
  values = flags.of_any_run(leave_out=[*DECIDED, "phases"])
  own: Any = dict(flag_values=values)
  absl_flags.DEFINE_list(
    "phases", None, "Numbers of phases after the first, such as 5,10,25; the other"
    " classes are spread evenly over them.", **own,
  )  # fmt: skip
  absl_flags.DEFINE_enum(
    "table", None, PAPERS, "Which of the paper's tables.", **own
  )
  absl_flags.DEFINE_string(
    "plan", None, "Instead of --table: a file that says which runs to compare, and"
    " why, such as those in results/studies. What is measured is written beside it.",
    **own,
  )  # fmt: skip
  absl_flags.DEFINE_list(
    "rows", None, "Rows to run, by name; the default is all of the table.", **own
  )  # fmt: skip
  absl_flags.DEFINE_bool(
    "upper_bound", False, "Also run joint training on all data, for the curves.",
    **own,
  )  # fmt: skip
  absl_flags.DEFINE_string(
    "root", "runs", "Directory of the runs, of the models of phase 0 they share"
    " (base_models) and of the tables.", **own,
  )  # fmt: skip
  return values


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of a table.

  Attributes:
    name: what --rows calls it.
    label: what the table calls it.
    fixed: settings that make it this row.
    references: names of the rows its paired differences are taken to.
    defaults: settings that a flag may replace.
    paper: its name in `paper_tables.yaml`, None if the paper does not have it.
    cell: what the paper's run in its place sets, None in a study.
  """

  name: str
  label: str
  fixed: Mapping[str, Any]
  references: tuple[str, ...] = ()
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
  paper: str | None = None
  cell: Mapping[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class Plan:
  """A table, and what a command asks for.

  Attributes:
    name: file name of the table.
    directory: where it is written.
    root: directory of runs.
    dataset: name of the data set.
    preset: name of the preset.
    phases: every N.
    seeds: every seed of the table, as far as the command knows them.
    given: settings of all rows: those of a study, or those for which a flag was given.
    rows: all that the table can have, in order.
    chosen: names of those to run.
    chosen_seeds: seeds to run.
    flags: of the command.
    table: which of the paper's; "" is a study.
    title: of a study, as its question and the rule of its decision.
  """

  name: str
  directory: Path
  root: Path
  dataset: str
  preset: str
  phases: tuple[int, ...]
  seeds: tuple[int, ...]
  given: Mapping[str, Any]
  rows: tuple[Row, ...]
  chosen: tuple[str, ...]
  chosen_seeds: tuple[int, ...]
  flags: FlagValues
  table: str = ""
  title: str = ""
  question: str = ""
  decision: str = ""

  def file(self, suffix: str) -> Path:
    """Where the table is written, by the kind of file."""
    return self.directory / f"{self.name}{suffix}"

  def row(self, name: str) -> Row | None:
    return next((row for row in self.rows if row.name == name), None)

  def settings(self, row: Row, phases: int, seed: int) -> Settings:
    """One cell: the preset, the row's defaults, what is given, the row itself."""
    given = {**row.defaults, **self.given, **row.fixed}
    values = presets.values(self.dataset, self.preset, given)
    cell = dict(phases=phases, seeds=(seed,))
    return Settings(self.dataset, self.preset, **{**values, **given, **cell})

  def workdir(self, row: Row, phases: int, seed: int, data: int) -> Path:
    """Where a cell is run; `data` is the checksum of what it learns."""
    settings = self.settings(row, phases, seed)
    return running.usual_workdir(settings, data, str(self.root))

  def cells(self) -> Iterable[tuple[Row, int, int]]:
    """Every (row, N, seed) to run; whole seeds first, so that pairs are complete."""
    rows = [row for row in self.rows if row.name in self.chosen]
    return _cells(self.chosen_seeds, self.phases, rows)

  def all_cells(self) -> Iterable[tuple[Row, int, int]]:
    """Those of the whole table, which other commands may have been asked for."""
    return _cells(self.seeds, self.phases, self.rows)


def _cells(seeds, phases, rows):
  for seed, n, row in itertools.product(seeds, phases, rows):
    yield row, n, seed


def from_flags(values: FlagValues) -> Plan:
  """What the flags ask for, or a `UserError`."""
  if values.plan is not None:
    return _study(values, flags.path(values.plan))
  if values.table is not None:
    return _paper(values)
  raise UserError("table", "`table` is missing", "write `table=1`, 2, s1 or s2")


def _paper(values: FlagValues) -> Plan:
  """A table of the paper, for the data and settings that flags give."""
  table, dataset, preset = values.table, values.dataset, values.preset
  found = _of_paper(table)
  given = flags.given(values, Settings)
  usual = presets.of(dataset)[preset].get("phases", Settings.phases)
  phases = given.pop("phases", published.columns(dataset) or (usual,))
  if not phases or len(set(phases)) < len(phases):
    raise UserError(
      "phases",
      f"`phases={','.join(map(str, phases))}` must name every N once",
      "write `phases=5,10`",
    )
  seeds = given.pop("seeds", (0,))
  _check_memory(given, found.get("other_tables", {}))
  memory = found.get("memory", {}).get(dataset)
  rows = [
    _paper_row(name, about, found, preset, memory)
    for name, about in found["rows"].items()
  ]
  if ours := sorted({*given}.intersection(*(row.fixed for row in rows))):
    raise UserError(
      ours[0],
      f"`{ours[0]}` is what the rows of `table={table}` differ in",
      "choose with `rows`",
    )
  chosen = _pick(rows, values.rows)
  if values.upper_bound:
    chosen = (*chosen, UPPER_BOUND)
  root = _root(values)
  return _checked(
    Plan(
      name=_name(table, dataset, preset, given),
      directory=root / "tables",
      root=root,
      dataset=dataset,
      preset=preset,
      phases=phases,
      seeds=seeds,
      given=given,
      rows=(*rows, _upper_bound(memory)),
      chosen=chosen,
      chosen_seeds=seeds,
      flags=values,
      table=table,
    )
  )


def _of_paper(table: str) -> dict[str, Any]:
  """The file of a table; one may have the rows of another."""
  found = _read(Path(__file__).with_name(f"table_{table}.yaml"))
  if isinstance(found["rows"], str):
    other = _of_paper(found["rows"].removeprefix("table_"))
    found = {**other, **found, "rows": other["rows"]}
  return found


def _check_memory(given, other_tables):
  kind = str(given.get("memory", "")).partition(":")[0].removesuffix("_bytes")
  if kind in other_tables:
    raise UserError(
      "memory",
      f"`memory={given['memory']}` belongs to another table",
      f"the rows of `table={other_tables[kind]}` are the same",
    )


def _paper_row(name, about, table, preset, memory) -> Row:
  """A row of a table of the paper.

  The paper fine-tunes the whole network and learns exemplars through it; the reduced
  presets do what works on short schedules: the head only.
  """
  kept = {"memory": memory} if memory else {}
  fixed = {**table.get("settings", {}), **about["settings"]}
  defaults = dict(kept)
  if about.get("stages") == "baseline":
    fixed |= presets.BASELINE
    cell = fixed
  else:
    cell = {**presets.COMPONENTS, **fixed}
    defaults |= dict(presets.COMPONENTS, recipe="paper")
    if preset != "paper":
      defaults |= dict(finetune="head", recipe="tuned")
  return Row(
    name,
    about["label"],
    fixed,
    tuple(about.get("minus", ())),
    defaults,
    about.get("paper"),
    {**cell, **kept},
  )


def _upper_bound(memory: str | None) -> Row:
  """Joint training on all data seen so far; only in the paper's figures."""
  about = dict(
    label="upper bound (joint training)",
    settings=dict(method="joint", distill=True),
    stages="baseline",
  )
  return _paper_row(UPPER_BOUND, about, {}, "", memory)


def _name(table, dataset, preset, given) -> str:
  """File name of a table: tables of other settings have other names."""
  parts = [f"table_{table}", dataset, preset]
  words = "_".join(f"{k}-{v}" for k, v in given.items())
  if len(words) > _LONGEST:
    digest = hashlib.sha256(words.encode()).hexdigest()[:8]
    words = f"{len(given)}-settings-{digest}"
  name = "_".join([*parts, words] if words else parts)
  return name.replace(":", "-").replace("/", "-")


def _study(values: FlagValues, path: Path) -> Plan:
  """A study, or those of its rows and seeds that flags name."""
  found = _checked_study(path)
  given = flags.given(values, Settings)
  seeds = given.pop("seeds", tuple(found["seeds"]))
  named = [n for n in ("table", "dataset", "preset") if values[n].present]
  if values.upper_bound:
    named.append("upper_bound")
  if other := [*given, *named]:
    problem = f"`{other[0]}` is not for plans, which decide it"
    raise UserError(other[0], problem, "leave it out")
  if lack := {*seeds} - {*found["seeds"]}:
    raise UserError(
      "seeds",
      f"seed {min(lack)} is not in the plan",
      f"choose from `seeds={','.join(map(str, found['seeds']))}`",
    )
  common = _settings(path, found["settings"])
  rows = [_row(path, name, row, common) for name, row in found["rows"].items()]
  plan = Plan(
    name=path.stem,
    directory=_private(path.parent),
    root=_root(values),
    dataset=found["dataset"],
    preset=found["preset"],
    phases=tuple(found["phases"]),
    seeds=tuple(found["seeds"]),
    given=common,
    rows=tuple(rows),
    chosen=_pick(rows, values.rows),
    chosen_seeds=seeds,
    flags=values,
    **{name: found[name].strip() for name in ("title", "question", "decision")},
  )
  for row in rows:
    _check_row(path, plan, row)
  return _checked(plan)


def _checked_study(path: Path) -> dict[str, Any]:
  """What a file of a study says, as far as one sees without its settings."""
  found = _read(path)
  if lack := mismatch(found, _STUDY):
    raise _error(path, lack)
  if other := sorted(found.keys() - _STUDY.keys()):
    raise _error(path, f"{other[0]} is not known")
  if not found["rows"]:
    raise _error(path, "it has no rows")
  for name in ("dataset", "preset"):
    _parsed(path, name, found[name])
  return found


def _row(path, name, about, common) -> Row:
  if other := sorted(about.keys() - _ROW.keys()):
    raise _error(path, f"row {name}: {other[0]} is not known")
  method = {"method": common.get("method", Settings.method)}
  fixed = {**method, **_settings(path, about["settings"])}
  references = tuple(about.get("minus", ()))
  return Row(name, about.get("label", name), fixed, references)


def _check_row(path, plan, row):
  """Refuses references to rows that are none, and settings without effect."""
  if other := [name for name in row.references if plan.row(name) is None]:
    problem = f"row {row.name} is compared with {min(other)}, which is none"
    raise _error(path, problem)
  if of_data := sorted(
    row.fixed.keys() & data.SOURCES[plan.dataset].options.keys()
  ):
    raise _error(
      path,
      f"row {row.name}: {of_data[0]} is of the data, which are loaded once for all"
      " rows",
      "put it into the plan's own settings",
    )
  given = {**plan.given, **row.fixed}
  plan.settings(row, plan.phases[0], plan.seeds[0]).refuse_idle(
    {*row.fixed, "image_size", "val_fraction"} & given.keys()
  )


# A study says its settings as a command line would.
_FLAGS = flags.of_any_run()
_NO_SETTINGS = {"dataset", "preset", "phases", "seeds"}


def _settings(path, given):
  fields = {field.name for field in dataclasses.fields(Settings)}
  if other := sorted({*given} - (fields & {*_FLAGS} - _NO_SETTINGS)):
    raise _error(path, f"{other[0]} is no setting of a row")
  return {name: _parsed(path, name, value) for name, value in given.items()}


def _parsed(path, name, value):
  try:
    return _FLAGS[name].parser.parse(str(value))
  except ValueError as error:
    raise _error(path, f"{name}: {error}") from None


def _read(path: Path) -> dict[str, Any]:
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


def _error(path, problem, fix="results/studies has examples"):
  return UserError("plan", f"`plan={path}` cannot be used ({problem})", fix)


def _pick(rows: Sequence[Row], names: Sequence[str] | None) -> tuple[str, ...]:
  """The rows named by --rows; None picks all."""
  known = [row.name for row in rows]
  if names is None:
    return tuple(known)
  choices = f"choose from `rows={','.join(known)}`"
  for name in names:
    if name not in known:
      problem = f"`rows={','.join(names)}`: this table has no row {name!r}"
      raise UserError("rows", problem, choices)
  if not names:
    raise UserError("rows", "`rows` is empty", choices)
  return tuple(names)


def _checked(plan: Plan) -> Plan:
  """Settings check themselves, all seeds together."""
  if not plan.chosen_seeds:
    raise UserError(
      "seeds", "`seeds` is empty", "name at least one, such as `seeds=0`"
    )
  first = plan.settings(*next(iter(plan.cells())))
  dataclasses.replace(first, seeds=plan.chosen_seeds)
  return plan


def _root(values: FlagValues) -> Path:
  return _private(running.directory(values, "root") or Path("runs"))


def _private(directory: Path) -> Path:
  """The directory, or for processes but the first one of their own."""
  from mnemonics_jax.parallel import processes

  return processes.private_directory(directory)
