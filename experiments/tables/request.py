"""The flags of a table, and what they ask for."""

from collections.abc import Iterable, Mapping
import dataclasses
import hashlib
import itertools
from pathlib import Path
from typing import Any

from absl import flags as absl_flags
from absl.flags import FlagValues

from experiments import flags, running
from experiments.tables import plan as plan_lib
from experiments.tables import published
from experiments.tables import rows as table_rows
from experiments.tables.plan import Plan
from experiments.tables.rows import Row
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings, presets

# Flags of a run that a table does not have, and what decides instead.
DECIDED = {
  "method": "the rows decide it; choose them with --rows",
  "exemplars": "the rows decide it; choose them with --rows",
  "adjust": "the rows decide it; choose them with --rows",
  "workdir": "every cell has a directory of its own; use --root",
  "fresh": "start over with another --root",
  "base_models": "cells share them below --root; use --root",
}


def define_flags() -> FlagValues:
  """The flags of a table."""
  values = flags.of_any_run(leave_out=[*DECIDED, "phases"])
  absl_flags.DEFINE_list(
    "phases",
    None,
    "Numbers of phases after the first, such as 5,10,25; the other classes are spread"
    " evenly over them.",
    flag_values=values,
  )
  absl_flags.DEFINE_enum(
    "table",
    None,
    table_rows.TABLES,
    "Which of the paper's tables.",
    flag_values=values,
  )
  absl_flags.DEFINE_string(
    "plan",
    None,
    "Instead of --table: a file that says which runs to compare, and why, such as"
    " those in results/studies. What is measured is written beside it.",
    flag_values=values,
  )
  absl_flags.DEFINE_list(
    "rows",
    None,
    "Rows to run, by name; the default is all of the table.",
    flag_values=values,
  )
  absl_flags.DEFINE_bool(
    "upper_bound",
    False,
    "Also run joint training on all data, for the curves.",
    flag_values=values,
  )
  absl_flags.DEFINE_string(
    "root",
    "runs",
    "Directory of the runs, of the models of phase 0 they share (base_models) and of"
    " the tables.",
    flag_values=values,
  )
  return values


# Of settings in a file name; systems allow 255 characters in all.
_LONGEST = 120


@dataclasses.dataclass(frozen=True)
class Request:
  """What a command asks for.

  Attributes:
    table: which of the paper's.
    dataset: name of the data set.
    preset: name of the preset.
    available: all rows the table can have.
    rows: those to run.
    phases: every N.
    seeds: every seed.
    given: other settings for which a flag was given.
    root: directory of runs.
    directory: where the table is written.
    flags: of the command.
    plan: the file that asks for it, if the paper does not have this table.
  """

  table: str
  dataset: str
  preset: str
  available: tuple[Row, ...]
  rows: tuple[Row, ...]
  phases: tuple[int, ...]
  seeds: tuple[int, ...]
  given: Mapping[str, Any]
  root: Path
  directory: Path
  flags: FlagValues
  plan: Plan | None = None

  @property
  def name(self) -> str:
    """File name of the table: tables of other settings have other names."""
    if self.plan:
      return self.plan.path.stem
    parts = [f"table_{self.table}", self.dataset, self.preset]
    given = "_".join(f"{k}-{v}" for k, v in self.given.items())
    if len(given) > _LONGEST:
      digest = hashlib.sha256(given.encode()).hexdigest()[:8]
      given = f"{len(self.given)}-settings-{digest}"
    name = "_".join([*parts, given] if given else parts)
    return name.replace(":", "-").replace("/", "-")

  @property
  def memory(self) -> dict[str, str]:
    """The memory of the table where it is not the preset's."""
    return table_rows.memory(self.table, self.dataset)

  def settings(self, row: Row, phases: int, seed: int) -> Settings:
    decided = {**self.memory, **self.given, **row.fixed}
    values = presets.values(self.dataset, self.preset, decided)
    return table_rows.settings(
      row,
      dataset=self.dataset,
      preset=self.preset,
      values={**values, **self.memory},
      given=self.given,
      phases=phases,
      seed=seed,
    )

  def workdir(self, row: Row, phases: int, seed: int, data: int) -> Path:
    """Where a cell is run; `data` is the checksum of what it learns."""
    settings = self.settings(row, phases, seed)
    return running.usual_workdir(settings, data, str(self.root))

  def published(self, row: Row) -> dict[str, Any] | None:
    """What the paper's cells of a row set, beside its schedule."""
    return None if self.plan else {**row.cell, **self.memory}

  def cells(self) -> Iterable[tuple[Row, int, int]]:
    """Every (row, N, seed); whole seeds first, so that pairs are complete."""
    return _cells(self.seeds, self.phases, self.rows)

  def planned_cells(self) -> Iterable[tuple[Row, int, int]]:
    """Those of the whole plan, which other commands may have been asked for."""
    seeds = self.plan.seeds if self.plan else self.seeds
    return _cells(seeds, self.phases, self.available)


def _cells(seeds, phases, rows):
  for seed, n, row in itertools.product(seeds, phases, rows):
    yield row, n, seed


def request_from_flags(values: FlagValues) -> Request:
  """What the flags ask for, or a `UserError`."""
  if values.plan is not None:
    return _planned(values, plan_lib.load(values.plan))
  if values.table is None:
    raise UserError(
      "table", "`table` is missing", "write `table=1`, 2, s1 or s2"
    )
  given = flags.given(values, Settings)
  dataset = values.dataset
  phases = given.pop("phases", _phases(dataset, values.preset))
  if not phases or len(set(phases)) < len(phases):
    raise UserError(
      "phases",
      f"`phases={','.join(map(str, phases))}` must name every N once",
      "write `phases=5,10`",
    )
  seeds = given.pop("seeds", (0,))
  kind = str(given.get("memory", "")).partition(":")[0]
  kind = kind.removesuffix("_bytes")
  if (values.table, kind) in [("1", "total"), ("s1", "per_class")]:
    other = "s1" if values.table == "1" else "1"
    raise UserError(
      "memory",
      f"`memory={given['memory']}` belongs to another table",
      f"the rows of `table={other}` are the same",
    )
  available = table_rows.rows(values.table, values.preset)
  if "distill" in given and values.table == "s2":
    raise UserError(
      "distill",
      "`distill` is what the rows of `table=s2` differ in",
      "choose with `rows`",
    )
  rows = table_rows.pick(available, values.rows)
  bound = [table_rows.upper_bound()]
  root = _root(values)
  request = Request(
    table=values.table,
    dataset=dataset,
    preset=values.preset,
    available=(*available, *bound),
    rows=(*rows, *(bound if values.upper_bound else [])),
    phases=phases,
    seeds=seeds,
    given=given,
    root=root,
    directory=root / "tables",
    flags=values,
  )
  return _checked(request)


def _planned(values: FlagValues, plan: Plan) -> Request:
  """What a plan asks for, or those of its rows and seeds that flags name."""
  given = flags.given(values, Settings)
  seeds = given.pop("seeds", plan.seeds)
  named = [n for n in ("table", "dataset", "preset") if values[n].present]
  if values.upper_bound:
    named.append("upper_bound")
  if other := [*given, *named]:
    problem = f"`{other[0]}` is not for plans, which decide it"
    raise UserError(other[0], problem, "leave it out")
  if lack := {*seeds} - {*plan.seeds}:
    raise UserError(
      "seeds",
      f"seed {min(lack)} is not in the plan",
      f"choose from `seeds={','.join(map(str, plan.seeds))}`",
    )
  return _checked(
    Request(
      table="",
      dataset=plan.dataset,
      preset=plan.preset,
      available=plan.rows,
      rows=tuple(table_rows.pick(plan.rows, values.rows)),
      phases=plan.phases,
      seeds=seeds,
      given=plan.settings,
      root=_root(values),
      directory=_private(plan.path.parent),
      flags=values,
      plan=plan,
    )
  )


def _root(values: FlagValues) -> Path:
  return _private(running.directory(values, "root") or Path("runs"))


def _private(directory: Path) -> Path:
  """The directory, or for processes but the first one of their own."""
  from mnemonics_jax.parallel import processes

  return processes.private_directory(directory)


def _checked(request: Request) -> Request:
  """Settings check themselves, all seeds together."""
  seeds, phases = request.seeds, request.phases
  row = request.rows[0]
  if not seeds:
    raise UserError(
      "seeds", "`seeds` is empty", "name at least one, such as `seeds=0`"
    )
  dataclasses.replace(request.settings(row, phases[0], seeds[0]), seeds=seeds)
  return request


def _phases(dataset: str, preset: str) -> tuple[int, ...]:
  """Every N that the paper has for a data set; else that of a run."""
  usual = presets.of(dataset)[preset].get("phases", Settings.phases)
  return published.columns(dataset) or (usual,)
