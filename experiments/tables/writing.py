"""A table on disk: JSON with all cells, Markdown and a page made from it."""

from collections.abc import Iterable, Mapping, Sequence
import contextlib
from pathlib import Path
from typing import Any

from experiments.paper import departures
from experiments.tables import figures, views
from experiments.tables.cells import Cell, Sheet
from experiments.tables.request import Request
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import environment, files, layout, lock
from mnemonics_jax.runs.schema import Each


def path_of(request: Request, suffix: str) -> Path:
  """Where a table is written, by the kind of file."""
  return request.root / "tables" / f"{request.name}{suffix}"


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
  with lock.waiting(path.with_suffix(".lock")):
    written = _read(path)
    cells = _merge(request, written.get("cells", {}), cells, data, lacking)
    commands = [*written.get("commands", ()), environment.command()]
    record = {
      "table": request.table,
      "dataset": request.dataset,
      "preset": request.preset,
      "flags": dict(request.given),
      "commands": list(dict.fromkeys(commands)),
      "environment": _environment(request, cells.values())
      or written.get("environment", {}),
      "cells": cells,
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
  )
  if draw:
    figures.write(sheet, request.root, request.name)
  pictures = [
    [path for name in names if (path := _picture(request, name)).exists()]
    for names in figures.names(sheet, request.name)
  ]
  files.write_text(
    path_of(request, ".md"), views.markdown(sheet, record, *pictures)
  )
  files.write_text(
    path_of(request, ".html"), views.html(sheet, record, *pictures)
  )
  return sheet


def _picture(request: Request, name: str) -> Path:
  return request.root / "tables" / f"{name}.png"


def _read(path: Path) -> dict[str, Any]:
  """What earlier commands have written of a table."""
  try:
    return layout.read_json(path, _RECORD) if path.exists() else {}
  except layout.DamagedFile as error:
    raise UserError(
      "root", error.problem, "remove it, and it is written again"
    ) from error


_RECORD = {
  "commands": [str],
  "environment": {},
  "cells": Each(
    {"row": str, "phases": int, "seed": int, "workdir": str, "status": str}
  ),
}


def _merge(
  request: Request,
  written: Mapping[str, Cell],
  cells: Mapping[str, Cell],
  data: int,
  lacking: Sequence[str],
) -> dict[str, Cell]:
  """Cells that are still valid, and what this command knows better."""
  rows = {row.name: row for row in request.available}

  def valid(cell):
    """Whether it would get the same numbers today."""
    row = rows.get(cell["row"])
    if row is None:
      return False
    place = request.workdir(row, cell["phases"], cell["seed"], data)
    return place.name == cell["workdir"]

  merged = {key: cell for key, cell in written.items() if valid(cell)}
  for key, cell in cells.items():
    if cell["status"] != "pending" or key not in merged:
      merged[key] = cell
  return {
    key: {**cell, "departures": [*_departures(request, cell), *lacking]}
    for key, cell in merged.items()
  }


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
