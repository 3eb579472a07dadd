"""The paper's tables, measured: every cell of one table by one command.

  python -m experiments.tables --table=2 --dataset=digits --seeds=0,1,2,3,4
  python -m experiments.tables --table=1 --dataset=cifar100 --phases=5,10,25
  python -m experiments.tables --table=2 --rows=herding,mnemonics --seeds=0,1

Rows (choose some with --rows):
  1   LwF, iCaRL, BiC and LUCIR with herding, and each with mnemonics:
      lwf, lwf_mnemonics, icarl, icarl_mnemonics, bic, bic_mnemonics, lucir,
      lucir_mnemonics. Mnemonics rows learn and adjust exemplars, transfer
      weights and fine-tune; the others do none of it.
  2   LUCIR with weight transfer and fine-tune: random, random_adjust, herding,
      herding_adjust, mnemonics, mnemonics_adjust.
  s1  as 1, with a budget of exemplars for all classes together.
  s2  LUCIR with mnemonics, without and with distillation: nodistill, distill.

A cell is a run with one seed in its own directory below --root. What has
finished there is not run again, so the same command continues a table that was
interrupted, and several commands with other --seeds, --phases or --rows can
fill one table, even at the same time. After every cell the table is written to
ROOT/tables as Markdown, HTML and JSON, beside the paper's numbers.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import json
import math
from pathlib import Path
import shlex
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments import cifar, command, common, digits, launch, table_rows
from experiments import workdir as workdir_lib
from experiments.paper import reductions
from experiments.settings import DiskError, Settings, UserError
from experiments.stopping import Stopped
from experiments.table_rows import Row
from mnemonics_jax import files

if TYPE_CHECKING:
  from experiments.table_cells import Sheet
  from mnemonics_jax.data import Dataset
  from mnemonics_jax.report import Run

FLAGS = flags.FLAGS

_TABLE = flags.DEFINE_enum(
  "table", None, table_rows.TABLES, "Which of the paper's tables."
)
_DATASET = flags.DEFINE_enum(
  "dataset", "digits", ["cifar100", "digits"], "Which data to fill it with."
)
_ROWS = flags.DEFINE_list(
  "rows", None, "Rows to run, by name; the default is all of the table."
)
_UPPER_BOUND = flags.DEFINE_bool(
  "upper_bound", False, "Also run joint training on all data, for the curves."
)
_ROOT = flags.DEFINE_string(
  "root", "runs", "Directory of the runs, of the models of phase 0 they share"
  " (base_models) and of the tables."
)  # fmt: skip

# Shared flags that a table does not take: its rows or --root decide them.
_DECIDED = {
  "method": "the rows decide it; choose them with --rows",
  "exemplars": "the rows decide it; choose them with --rows",
  "adjust": "the rows decide it; choose them with --rows",
  "workdir": "every cell has a directory of its own; use --root",
  "fresh": "start over with another --root",
  "base_models": "cells share them below --root; use --root",
}
for _flag in FLAGS.get_key_flags_for_module(cifar):
  if _flag.name not in _DECIDED:
    flags.declare_key_flag(_flag.name)

_PRESETS = {"cifar100": cifar.PRESETS, "digits": digits.PRESETS}
_PHASES = {"cifar100": (5, 10, 25), "digits": (5,)}


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
    root: directory of runs and tables.
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

  @property
  def name(self) -> str:
    """File name of the table: tables of other settings have other names."""
    parts = [f"table_{self.table}", self.dataset, self.preset]
    parts += [f"{k}-{v}" for k, v in self.given.items()]
    return "_".join(parts).replace(":", "-").replace("/", "-")

  def settings(self, row: Row, phases: int, seed: int) -> Settings:
    memory = table_rows.memory(self.table, self.dataset)
    return table_rows.settings(
      row,
      dataset=self.dataset,
      preset=self.preset,
      values={**_PRESETS[self.dataset][self.preset], **memory},
      given=self.given,
      phases=phases,
      seed=seed,
    )

  def cells(self) -> Iterable[tuple[Row, int, int]]:
    """Every (row, N, seed); whole seeds first, so that pairs are complete."""
    for seed in self.seeds:
      for phases in self.phases:
        for row in self.rows:
          yield row, phases, seed


def request_from_flags() -> Request:
  """What the flags ask for, or a `UserError`."""
  if _TABLE.value is None:
    raise UserError("--table is missing; write --table=1, 2, s1 or s2.")
  for name, why in _DECIDED.items():
    if FLAGS[name].value not in (None, FLAGS[name].default):
      raise UserError(f"--{name} is not for tables: {why}.")
  given = common.given_settings()
  phases = given.pop("phases", _PHASES[_DATASET.value])
  if not phases or len(set(phases)) < len(phases):
    raise UserError(
      f"--phases={','.join(map(str, phases))} must name every N once, such as"
      " --phases=5,10."
    )
  seeds = given.pop("seeds", (0,))
  kind = str(given.get("memory", "")).partition(":")[0]
  if (_TABLE.value, kind) in [("1", "total"), ("s1", "per_class")]:
    other = "s1" if _TABLE.value == "1" else "1"
    raise UserError(
      f"--memory={given['memory']} belongs to --table={other}, whose rows are"
      " the same."
    )
  available = table_rows.rows(_TABLE.value, FLAGS.preset)
  if "distill" in given and _TABLE.value == "s2":
    raise UserError(
      "--distill is what the rows of --table=s2 differ in; choose with --rows."
    )
  rows = table_rows.pick(available, _ROWS.value)
  bound = [table_rows.upper_bound()]
  request = Request(
    table=_TABLE.value,
    dataset=_DATASET.value,
    preset=FLAGS.preset,
    available=(*available, *bound),
    rows=(*rows, *(bound if _UPPER_BOUND.value else [])),
    phases=phases,
    seeds=seeds,
    given=given,
    root=common.directory("root"),
  )
  # Settings check themselves, all seeds together.
  row = request.rows[0]
  if not seeds:
    raise UserError("--seeds is empty; name at least one, such as --seeds=0.")
  dataclasses.replace(request.settings(row, phases[0], seeds[0]), seeds=seeds)
  return request


def fill(request: Request, dataset: "Dataset", **options: Any) -> "Sheet":
  """Runs the cells that have not finished and writes the table after each.

  Args:
    request: the table and its cells.
    dataset: what they are run on.
    **options: more arguments of `run`.
  """
  from experiments import table_cells
  from experiments.run import run
  from mnemonics_jax.report.progress import format_duration

  work = _work(request, dataset)
  cells, todo = {}, []
  for row, phases, seed in request.cells():
    settings = request.settings(row, phases, seed)
    workdir = workdir_lib.default(settings, str(request.root))
    cell = table_cells.pending(row, phases, seed, workdir.name)
    done = _finished_run(workdir)
    if done is None:
      todo.append((row, settings, workdir, cell))
    else:
      cell = table_cells.finished(cell, done)
    cells[table_cells.key(cell)] = cell
  finished = len(cells) - len(todo)
  print(
    f"Table {request.table} on {request.dataset}: {len(cells)} cells, of which"
    f" {finished} have finished; written to {_path(request, '.md')}.",
    flush=True,
  )
  _write(request, cells, draw=False)
  began = drawn = time.monotonic()
  worked = 0.0
  for index, (row, settings, workdir, cell) in enumerate(todo):
    (seed,) = settings.seeds
    left = sum(work[table_cells.key(c)] for *_, c in todo[index:])
    pace = (time.monotonic() - began) / worked if worked else None
    rest = f" · about {format_duration(pace * left)} left" if pace else ""
    print(
      f"\nCell {finished + index + 1} of {len(cells)}: {row.label} ·"
      f" N = {settings.phases} · seed {seed}{rest}",
      flush=True,
    )
    try:
      base_models = request.root / "base_models"
      run(settings, dataset, workdir, base_models=base_models, **options)
      cell = table_cells.finished(cell, _finished_run(workdir))
    except (Stopped, DiskError, OSError):  # None would spare the next cell.
      raise
    except workdir_lib.BusyError as error:
      print(f"Left to another command: {error}", flush=True)
    except Exception as error:  # The other cells can still be measured.
      if not isinstance(error, UserError):
        traceback.print_exc()
      print(f"This cell failed: {error}", file=sys.stderr, flush=True)
      cell = table_cells.failed(cell, str(error) or type(error).__name__)
    worked += work[table_cells.key(cell)]
    cells[table_cells.key(cell)] = cell
    # Drawing takes seconds, as long as a small cell.
    draw = time.monotonic() - drawn > 60
    _write(request, cells, draw=draw)
    drawn = time.monotonic() if draw else drawn
  for _, _, workdir, cell in todo:  # Another command may have ended some.
    if cells[table_cells.key(cell)]["status"] == "pending":
      done = _finished_run(workdir)
      if done is not None:
        cells[table_cells.key(cell)] = table_cells.finished(cell, done)
  return _write(request, cells, draw=True)


def _work(request, dataset):
  """Expected work of each cell in training steps; refuses what cannot be run."""
  from experiments import plan, table_cells
  from experiments.settings import build

  work, begun = {}, set()
  planned = {}
  for row, phases, seed in request.cells():
    if (row.name, phases) not in planned:
      config, stream = build(request.settings(row, phases, seed), dataset)
      images = sum(stream.class_sizes[: stream.classes_per_phase[0]])
      base = config.base.epochs * math.ceil(images / config.base.batch_size)
      planned[row.name, phases] = sum(plan.phase_work(config, stream)), base
    total, base = planned[row.name, phases]
    # Of each method's rows, the first trains the model of phase 0 for all.
    shared = row.fixed["method"], seed
    cell = table_cells.pending(row, phases, seed, "")
    work[table_cells.key(cell)] = total - (base if shared in begun else 0)
    begun.add(shared)
  return work


def _finished_run(workdir: Path) -> "Run | None":
  from mnemonics_jax import report

  if not (workdir / "results.json").exists():
    return None
  return report.load_run(workdir)


def _path(request, suffix):
  return request.root / "tables" / f"{request.name}{suffix}"


def _write(
  request: Request, cells: Mapping[str, Mapping[str, Any]], *, draw: bool
) -> "Sheet":
  """Writes the table with these cells and those other commands have added."""
  from experiments import table_cells, table_figures, table_views

  path = _path(request, ".json")
  path.parent.mkdir(parents=True, exist_ok=True)
  try:
    old = workdir_lib.read_json(path) if path.exists() else {}
  except UserError as error:
    raise UserError(
      f"{path} is damaged; remove it, and it is written again."
    ) from error
  ours = {row.name: row for row in request.available}

  def valid(cell):
    """Whether it would be run in the same way today."""
    row = ours.get(cell["row"])
    if row is None:
      return False
    settings = request.settings(row, cell["phases"], cell["seed"])
    return workdir_lib.default(settings).name == cell["workdir"]

  theirs = {k: c for k, c in old.get("cells", {}).items() if valid(c)}
  news = {
    name: cell
    for name, cell in cells.items()
    if cell["status"] != "pending" or name not in theirs
  }
  every = {**theirs, **news}
  sheet = table_cells.Sheet(
    table=request.table,
    dataset=request.dataset,
    preset=request.preset,
    rows=request.available,
    cells=list(every.values()),
    reductions={
      row.name: reductions(
        request.settings(row, request.phases[0], request.seeds[0])
      )
      for row in request.available
    },
  )
  asked = shlex.join(["python", "-m", "experiments.tables", *sys.argv[1:]])
  record = {
    "table": request.table,
    "dataset": request.dataset,
    "preset": request.preset,
    "flags": dict(request.given),
    "commands": list(dict.fromkeys([*old.get("commands", ()), asked])),
    "environment": _environment(request, every.values(), old),
    "cells": every,
  }
  files.write_text(path, json.dumps(record, indent=1) + "\n")
  name, folder = request.name, path.parent
  if draw:
    table_figures.write(sheet, folder, name)
  pictures = [
    picture
    for phases in sheet.phases
    if (picture := folder / f"{name}_n{phases}.png").exists()
  ]
  files.write_text(
    _path(request, ".md"),
    table_views.markdown(sheet, record, [p.name for p in pictures]),
  )
  files.write_text(
    _path(request, ".html"), table_views.html(sheet, record, pictures)
  )
  return sheet


def _environment(request, cells, old):
  """Where the cells were run, as their first run has written it down."""
  for cell in cells:
    config = request.root / cell["workdir"] / "config.json"
    if config.exists():
      return workdir_lib.read_json(config).get("environment", {})
  return old.get("environment", {})


def _loader(name: str) -> Callable[[], "Dataset"]:
  if name == "cifar100":
    return lambda: common.load_data(
      name, FLAGS.data_dir, download=FLAGS.download
    )
  return lambda: common.load_data(name, None)


@launch.computing()
def main(_) -> None:
  request = request_from_flags()
  saving = common.saving_policy()
  dataset = _loader(request.dataset)()
  sheet = fill(request, dataset, tensorboard=FLAGS.tensorboard, saving=saving)
  from experiments import table_views

  for title, table in [
    *table_views.quantity_tables(sheet),
    *table_views.difference_tables(sheet),
  ]:
    print(f"\n{title}\n\n{table_views.markdown_table(table)}")
  print(f"\nTable: {_path(request, '.html')}")
  if any(cell["status"] == "failed" for cell in sheet.cells):
    sys.exit(1)


if __name__ == "__main__":
  command.run(main)
