"""A table on disk: JSON with all cells; Markdown, a page and pictures made from it.

Finished cells that today's settings, data or code would not give stay in the JSON
as `outdated`, until they are valid again: what was measured is never lost.
"""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
import functools
import operator
from pathlib import Path
import shlex
from typing import Any

from experiments.paper import departures
from experiments.tables import cells as table_cells
from experiments.tables import figures, views
from experiments.tables.cells import Cell, Sheet
from experiments.tables.plan import Plan
from mnemonics_jax import files
from mnemonics_jax.errors import UserError
from mnemonics_jax.report.render import html, markdown
from mnemonics_jax.runs import environment, layout
from mnemonics_jax.runs.layout import Each, Maybe

_CELLS = Each(
  {"row": str, "phases": int, "seed": int, "workdir": str, "status": str}
)
_RECORD = {
  "commands": [str],
  "environment": {},
  "cells": _CELLS,
  "outdated": Maybe(_CELLS),
}


def read_cells(plan: Plan, data: int) -> dict[str, Cell]:
  """What was written of a table and would get the same numbers today, by key.

  Args:
    plan: the table.
    data: checksum of what its cells are run on.
  """
  written = _noted(_read(plan.file(".json")))
  elsewhere = {} if plan.table else _of_other_studies(plan, data)
  return elsewhere | {
    key: c
    for c in written
    if _is_valid(plan, c, data)
    and ((key := table_cells.key(c)) not in elsewhere or _is_finished(c))
  }


def _read(path: Path) -> dict[str, Any]:
  """What earlier commands have written of a table."""
  try:
    return layout.read_json(path, _RECORD) if path.exists() else {}
  except layout.DamagedFile as error:
    raise UserError(
      "root", error.problem, "remove it, and it is written again"
    ) from error


def _noted(record: Mapping[str, Any]) -> list[Cell]:
  """All cells that are written down, also those that were not valid then."""
  names = ("outdated", "cells")
  return [cell for name in names for cell in record.get(name, {}).values()]


def _is_finished(cell: Cell) -> bool:
  return cell["status"] == "finished"


def _is_valid(plan, cell, data):
  row = plan.row(cell["row"])
  if row is None:
    return False
  place = plan.workdir(row, cell["phases"], cell["seed"], data)
  return place.name == cell["workdir"]


def _of_other_studies(plan: Plan, data: int) -> dict[str, Cell]:
  """Cells that studies in the same directory have measured already, by key."""
  wanted = {}
  for row, phases, seed in plan.all_cells():
    name = plan.workdir(row, phases, seed, data).name
    wanted.setdefault(name, []).append(row.name)
  studies = []
  for path in sorted(plan.directory.glob("*.y*ml")):
    if path.stem == plan.name:
      continue
    with contextlib.suppress(UserError):  # Its own command tells of damage.
      written = _noted(_read(path.with_suffix(".json")))
      cells = [
        {"study": path.stem, **cell, "row": row}
        for cell in written
        if _is_finished(cell) and "study" not in cell
        for row in wanted.get(cell["workdir"], ())
      ]
      studies.append({table_cells.key(cell): cell for cell in cells})
  # That with the most counts where several have a cell: pairs should be of one.
  return functools.reduce(operator.or_, sorted(studies, key=len), {})


def write_table(
  plan: Plan,
  cells: Mapping[str, Cell],
  *,
  data: int,
  draw: bool,
  lacking: Sequence[str] = (),
) -> Sheet:
  """Writes the table with these cells and those other commands have added.

  Args:
    plan: the table.
    cells: by key; what is pending here may have finished elsewhere.
    data: checksum of what they are run on.
    draw: whether to draw the curves, too.
    lacking: in what these data are not the paper's.
  """
  path = plan.file(".json")
  path.parent.mkdir(parents=True, exist_ok=True)
  # What another command adds between reading and writing would be lost.
  with files.locked(path.with_suffix(".lock"), wait=True):
    written = _read(path)
    merged = read_cells(plan, data)
    for key, cell in cells.items():
      if cell["status"] != "pending" or key not in merged:
        merged[key] = cell
    merged = {
      key: {**cell, "departures": [*_departures(plan, cell), *lacking]}
      for key, cell in merged.items()
    }
    commands = [*written.get("commands", ()), environment.command()]
    record = {
      "table": plan.table,
      "dataset": plan.dataset,
      "preset": plan.preset,
      "flags": dict(plan.given),
      "commands": list(dict.fromkeys(map(_for_others, commands))),
      "environment": _environment(plan, merged.values())
      or written.get("environment", {}),
      "cells": merged,
      "outdated": _outdated(written, merged.values()),
    }
    layout.write_json(path, record)
    sheet = Sheet(plan, list(merged.values()))
    if draw:
      figures.write(sheet)
    page = views.page(sheet, record, *figures.written(sheet))
    for kind, render in ((".md", markdown), (".html", html)):
      files.write_text(plan.file(kind), render(page, plan.directory))
    return sheet


def _departures(plan: Plan, cell: Cell) -> list[str]:
  """In what a cell differs from the paper's in its place."""
  row = plan.row(cell["row"])
  assert row is not None, cell
  settings = plan.settings(row, cell["phases"], cell["seed"])
  return departures(settings, row.cell)


def _environment(plan: Plan, cells: Iterable[Cell]) -> dict[str, Any]:
  """Where the cells were run, as the first run has written it down."""
  for cell in cells:
    # A damaged file costs its own cell, not the table.
    with contextlib.suppress(layout.WorkdirError):
      if config := layout.read_config(plan.root / cell["workdir"]):
        return config.get("environment", {})
  return {}


def _outdated(
  written: Mapping[str, Any], cells: Iterable[Cell]
) -> dict[str, Cell]:
  """What was measured otherwise than the cells that are valid now."""
  place = lambda cell: f"{cell['row']}/{cell['workdir']}"
  noted = {place(cell): cell for cell in _noted(written) if _is_finished(cell)}
  valid = {place(cell) for cell in cells}
  return {name: cell for name, cell in noted.items() if name not in valid}


def _for_others(command: str) -> str:
  """A command without the places of this machine, which change no number."""
  kept, words = [], iter(shlex.split(command))
  for word in words:
    name, equals, _ = word.lstrip("-").partition("=")
    if not word.startswith("-") or name not in ("root", "data_dir"):
      kept.append(word)
    elif not equals:
      next(words, None)
  return shlex.join(kept)
