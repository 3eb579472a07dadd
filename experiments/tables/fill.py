"""Runs the cells of a table that have not finished."""

import dataclasses
import functools
from pathlib import Path
import sys
import time
import traceback
from typing import Any, NamedTuple

from experiments import running
from experiments.flags import in_flags
from experiments.tables import cells as table_cells
from experiments.tables.cells import Cell, Sheet
from experiments.tables.plan import Plan, Row
from experiments.tables.write import read_cells, write_table
from mnemonics_jax.data import Dataset
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.phase import cost
from mnemonics_jax.report.words import format_duration
from mnemonics_jax.runs import BusyError, Run, Stopped, layout, load_run
from mnemonics_jax.settings import Settings
from mnemonics_jax.settings.build import build

# Drawing takes seconds, as long as a small cell.
_SECONDS_BETWEEN_DRAWINGS = 60


class _Task(NamedTuple):
  """A run that fills a cell.

  Attributes:
    row: of the table.
    settings: of the run.
    workdir: where it is written.
    cell: as it is before the run.
  """

  row: Row
  settings: Settings
  workdir: Path
  cell: Cell

  @property
  def key(self) -> str:
    return table_cells.key(self.cell)


def fill(plan: Plan, dataset: Dataset, **options: Any) -> Sheet:
  """Runs the cells that have not finished and writes the table after each.

  Args:
    plan: the table and its cells.
    dataset: what they are run on.
    **options: more arguments of `runs.run`.
  """
  work = _work(plan, dataset)
  cells, tasks = _read(plan, dataset.checksum)
  write = functools.partial(
    write_table, plan, data=dataset.checksum, lacking=dataset.departures
  )
  finished = len(cells) - len(tasks)
  called = f"Table {plan.table}" if plan.table else f"Plan {plan.name}"
  print(
    f"{called} on {plan.dataset}: {len(cells)} cells, of which {finished} have"
    f" finished; written to {plan.file('.md')}.",
    flush=True,
  )
  write(cells, draw=False)
  options |= dict(flags=plan.flags, base_models=plan.root / "base_models")
  began = drawn = time.monotonic()
  worked = 0.0
  for index, task in enumerate(tasks):
    left = sum(work[other.key] for other in tasks[index:])
    pace = (time.monotonic() - began) / worked if worked else None
    rest = f" · about {format_duration(pace * left)} left" if pace else ""
    (seed,) = task.settings.seeds
    print(
      f"\nCell {finished + index + 1} of {len(cells)}: {task.row.label} ·"
      f" N = {task.settings.phases} · seed {seed}{rest}",
      flush=True,
    )
    cells[task.key] = _run(task, dataset, options)
    worked += work[task.key]
    draw = time.monotonic() - drawn > _SECONDS_BETWEEN_DRAWINGS
    write(cells, draw=draw)
    drawn = time.monotonic() if draw else drawn
  for task in tasks:  # Another command may have ended some, or tried again.
    done = _finished_run(task.workdir)
    if cells[task.key]["status"] != "finished" and done is not None:
      cells[task.key] = table_cells.finished(task.cell, done)
  return write(cells, draw=True)


def _work(plan: Plan, dataset: Dataset) -> dict[str, float]:
  """Expected work of each cell in training steps; refuses what cannot be run."""
  work, begun = {}, set()
  planned = {}
  for row, phases, seed in plan.cells():
    if (row.name, phases) not in planned:
      config, stream = build(plan.settings(row, phases, seed), dataset)
      planned[row.name, phases] = (
        sum(cost.phase_work(config)),
        *_phase_0(config, stream),
      )
    total, base, same = planned[row.name, phases]
    # Of rows that begin with the same model, the first trains it for all.
    cell = table_cells.pending(row, phases, seed, "")
    work[table_cells.key(cell)] = total - (base if (same, seed) in begun else 0)
    begun.add((same, seed))
  return work


def _phase_0(config, stream):
  """Its steps, and what its model depends on, as `runs/base_models.py` has it."""
  classes = stream.classes_per_phase[0]
  images = sum(stream.class_sizes[:classes])
  method = dataclasses.replace(config.method, distill=True)
  same = config.model, method, config.base, config.augment
  learned = stream.class_names[:classes], images
  return config.base.epochs * config.base.steps(images), (same, learned)


def _read(plan: Plan, data: int) -> tuple[dict[str, Cell], list[_Task]]:
  """All cells by key as they are on disk, and the runs that are missing.

  A cell that has been written is finished even if its run is elsewhere, or gone, or
  was begun anew. Nor does a run of later code replace it, whose model of phase 0 may
  be another than that of the cells it is paired with. A run whose files are damaged
  goes on.
  """
  written = read_cells(plan, data)
  cells, tasks = {}, []
  for row, phases, seed in plan.cells():
    workdir = plan.workdir(row, phases, seed, data)
    cell = table_cells.pending(row, phases, seed, workdir.name)
    done = _finished_run(workdir)
    known = written.get(table_cells.key(cell), cell)
    written_once = known["status"] == "finished"
    if done is not None:
      cell = table_cells.finished(cell, done)
      if written_once and known.get("code") != cell["code"]:
        cell = known
    elif written_once and not layout.results_path(workdir).exists():
      cell = known
    else:
      settings = plan.settings(row, phases, seed)
      tasks.append(_Task(row, settings, workdir, cell))
    cells[table_cells.key(cell)] = cell
  return cells, tasks


def _run(task: _Task, dataset: Dataset, options: dict[str, Any]) -> Cell:
  """The cell after its run: finished, failed, or left to another command."""
  try:
    running.run(task.settings, dataset, task.workdir, **options)
    return table_cells.finished(task.cell, load_run(task.workdir))
  except (Stopped, DiskError, OSError):  # None would spare the next cell.
    raise
  except BusyError as error:
    message = in_flags(str(error), options["flags"])
    print(f"Left to another command: {message}", flush=True)
    return task.cell
  except Exception as error:  # The other cells can still be measured.
    if not isinstance(error, UserError):
      traceback.print_exc()
    message = in_flags(str(error), options["flags"]) or type(error).__name__
    print(f"This cell failed: {message}", file=sys.stderr, flush=True)
    return table_cells.failed(task.cell, message)


def _finished_run(workdir: Path) -> Run | None:
  """The run in a directory; None if it has to go on, or to be mended."""
  if not layout.results_path(workdir).exists():
    return None
  try:
    return load_run(workdir)
  except layout.DamagedFile:
    return None
