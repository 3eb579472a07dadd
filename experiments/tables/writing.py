"""A table on disk: JSON with all cells, Markdown and a page made from it.

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
from experiments.tables.request import Request
from mnemonics_jax import files
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import environment, layout
from mnemonics_jax.runs.layout import Each, Maybe


def path_of(request: Request, suffix: str) -> Path:
  """Where a table is written, by the kind of file."""
  return request.directory / f"{request.name}{suffix}"


def read_cells(request: Request, data: int) -> dict[str, Cell]:
  """What was written of a table and would get the same numbers today, by key.

  Args:
    request: the table.
    data: checksum of what its cells are run on.
  """
  written = _noted(_read(path_of(request, ".json")))
  elsewhere = _of_other_studies(request, data) if request.plan else {}
  return elsewhere | {
    key: c
    for c in written
    if _is_valid(request, c, data)
    and ((key := table_cells.key(c)) not in elsewhere or _is_finished(c))
  }


def _noted(record: Mapping[str, Any]) -> list[Cell]:
  """All cells that are written down, also those that were not valid then."""
  names = ("outdated", "cells")
  return [cell for name in names for cell in record.get(name, {}).values()]


def _is_finished(cell: Cell) -> bool:
  return cell["status"] == "finished"


def _is_valid(request, cell, data):
  row = next((r for r in request.available if r.name == cell["row"]), None)
  if row is None:
    return False
  place = request.workdir(row, cell["phases"], cell["seed"], data)
  return place.name == cell["workdir"]


def _of_other_studies(request: Request, data: int) -> dict[str, Cell]:
  """Cells that plans in the same directory have measured already, by key."""
  wanted = {}
  for row, phases, seed in request.planned_cells():
    name = request.workdir(row, phases, seed, data).name
    wanted.setdefault(name, []).append(row.name)
  studies = []
  for path in sorted(request.directory.glob("*.y*ml")):
    if path.stem == request.name:
      continue
    with contextlib.suppress(UserError):  # What is damaged is told by its plan.
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
  request: Request,
  cells: Mapping[str, Cell],
  *,
  data: int,
  draw: bool,
  lacking: Sequence[str] = (),
) -> Sheet:
  """Writes the table with these cells and those other commands have added.

  Args:
    request: the table.
    cells: by key; what is pending here may have finished elsewhere.
    data: checksum of what they are run on.
    draw: whether to draw the curves, too.
    lacking: in what these data are not the paper's.
  """
  path = path_of(request, ".json")
  path.parent.mkdir(parents=True, exist_ok=True)
  # What another command adds between reading and writing would be lost.
  with files.locked(path.with_suffix(".lock"), wait=True):
    written = _read(path)
    cells = _merge(request, cells, data, lacking)
    commands = [*written.get("commands", ()), environment.command()]
    record = {
      "table": request.table,
      "dataset": request.dataset,
      "preset": request.preset,
      "flags": dict(request.given),
      "commands": list(dict.fromkeys(map(_for_others, commands))),
      "environment": _environment(request, cells.values())
      or written.get("environment", {}),
      "cells": cells,
      "outdated": _outdated(written, cells.values()),
    }
    layout.write_json(path, record)
    return _write_views(request, record, draw)


def _write_views(request: Request, record: dict[str, Any], draw: bool) -> Sheet:
  """The table for people."""
  sheet = Sheet(
    table=request.table,
    dataset=request.dataset,
    preset=request.preset,
    rows=request.available,
    cells=list(record["cells"].values()),
    plan=request.plan,
  )
  if draw:
    figures.write(sheet, request.root, path_of(request, ""))
  pictures = [
    [path for n in names if (path := request.directory / f"{n}.png").exists()]
    for names in figures.names(sheet, request.name)
  ]
  files.write_text(
    path_of(request, ".md"), views.markdown(sheet, record, *pictures)
  )
  files.write_text(
    path_of(request, ".html"), views.html(sheet, record, *pictures)
  )
  return sheet


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


def _read(path: Path) -> dict[str, Any]:
  """What earlier commands have written of a table."""
  try:
    return layout.read_json(path, _RECORD) if path.exists() else {}
  except layout.DamagedFile as error:
    raise UserError(
      "root", error.problem, "remove it, and it is written again"
    ) from error


_CELLS = Each(
  {"row": str, "phases": int, "seed": int, "workdir": str, "status": str}
)
_RECORD = {
  "commands": [str],
  "environment": {},
  "cells": _CELLS,
  "outdated": Maybe(_CELLS),
}


def _merge(
  request: Request,
  cells: Mapping[str, Cell],
  data: int,
  lacking: Sequence[str],
) -> dict[str, Cell]:
  """Cells that are still valid, and what this command knows better."""
  merged = read_cells(request, data)
  for key, cell in cells.items():
    if cell["status"] != "pending" or key not in merged:
      merged[key] = cell
  return {
    key: {**cell, "departures": [*_departures(request, cell), *lacking]}
    for key, cell in merged.items()
  }


def _outdated(
  written: Mapping[str, Any], cells: Iterable[Cell]
) -> dict[str, Cell]:
  """What was measured otherwise than the cells that are valid now."""
  place = lambda cell: f"{cell['row']}/{cell['workdir']}"
  noted = {place(cell): cell for cell in _noted(written) if _is_finished(cell)}
  valid = {place(cell) for cell in cells}
  return {name: cell for name, cell in noted.items() if name not in valid}


def _departures(request: Request, cell: Cell) -> list[str]:
  """In what a cell differs from the paper's in its place."""
  row = next(r for r in request.available if r.name == cell["row"])
  settings = request.settings(row, cell["phases"], cell["seed"])
  return departures(settings, request.published(row))


def _environment(request: Request, cells: Iterable[Cell]) -> dict[str, Any]:
  """Where the cells were run, as the first run has written it down."""
  for cell in cells:
    # A damaged file costs its own cell, not the table.
    with contextlib.suppress(layout.WorkdirError):
      if config := layout.read_config(request.root / cell["workdir"]):
        return config.get("environment", {})
  return {}
