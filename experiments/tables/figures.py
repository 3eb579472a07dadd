"""Figures of a table, seeds merged: curves (4, S1), moving exemplars (S2)."""

from collections.abc import Iterator, Sequence
import contextlib
import itertools
from pathlib import Path
import statistics
from typing import Any

from experiments.tables import cells as table_cells
from experiments.tables.cells import Cell, Sheet
from experiments.tables.plan import UPPER_BOUND, Row
from mnemonics_jax.report import draw, lines, words
from mnemonics_jax.report.draw import COLORS, INK, MARKERS, Drawing
from mnemonics_jax.report.group import merge_seeds
from mnemonics_jax.runs import Run, WorkdirError, load_run

_PANELS = {
  "reported": "reported read-out",
  "nme": "nearest mean of exemplars (nme)",
}


def write(sheet: Sheet) -> None:
  """Draws, with the numbers of each picture as CSV."""
  drawings = itertools.chain(curves(sheet), moves(sheet))
  draw.save_all(drawings, sheet.plan.directory)


def written(sheet: Sheet) -> tuple[list[Path], list[Path]]:
  """Pictures that are there: curves, and how far exemplars move."""
  names = (
    [f"_n{phases}.png" for phases in sheet.phases],
    [f"_distances_{row.name}.png" for row in sheet.shown],
  )
  curves, moves = (
    [path for name in kind if (path := sheet.plan.file(name)).exists()]
    for kind in names
  )
  return curves, moves


def moves(sheet: Sheet) -> Iterator[Drawing]:
  """For every row that learns exemplars: how far they move, by N."""
  for row in sheet.shown:
    by_phases = {
      phases: merge_seeds(_runs(sheet.plan.root, sheet.of(row.name, phases)))
      for phases in sheet.phases
    }
    # Of runs that are not alike in all but their seeds, the first is shown.
    runs = {n: found[0] for n, found in by_phases.items() if found}
    runs = {n: r for n, r in runs.items() if lines.measured(r, "exemplars")}
    if runs:
      titles = [f"N = {phases}" for phases in runs]
      yield lines.distances(
        f"{sheet.plan.name}_distances_{row.name}", [*runs.values()], titles
      )


def _runs(root: Path, cells: Sequence[Cell]) -> list[Run]:
  """Those that are still there: of others the table has the numbers."""
  found = []
  for cell in cells:
    with contextlib.suppress(WorkdirError):
      found.append(load_run(root / cell["workdir"]))
  return found


def curves(sheet: Sheet) -> Iterator[Drawing]:
  """One figure per N: mean over seeds, ribbons are 95 % intervals."""
  for phases in sheet.phases:
    shown = [row for row in sheet.shown if sheet.of(row.name, phases)]
    if not shown:
      continue
    rows = [
      point
      for readout in _PANELS
      for row in shown
      for point in _points(sheet.of(row.name, phases), row, readout)
    ]
    looks = {row.name: _style(sheet, row) for row in shown}
    panels = [
      lines.accuracy_panel(
        found,
        "row",
        looks,
        title=_PANELS[readout],
        ylabel=lines.ACCURACY if readout == "reported" else "",
      )
      for readout, found in lines.split(rows, "panel").items()
    ]
    figure = lines.plot(
      [panels],
      (9.6, 4.0 + 0.22 * ((len(shown) + 2) // 3)),
      [row.label for row in shown],
      sharey=True,
      loc="outside lower center",
      ncols=3,
    )
    finding = _ends(sheet, shown, phases)
    yield lines.drawing(f"{sheet.plan.name}_n{phases}", figure, rows, finding)


def _ends(sheet: Sheet, rows: Sequence[Row], phases: int) -> str:
  """The accuracy of every row after the last phase, in words."""
  ends = []
  for row in rows:
    cells = sheet.of(row.name, phases)
    last = [table_cells.accuracies(cell)[-1] for cell in cells]
    ends.append(f"{words.share(statistics.fmean(last))} ({row.label})")
  return (
    f"N = {phases}: after the last phase the reported read-out has "
    f"{words.listed(ends, most=len(ends))}."
  )


def _style(sheet: Sheet, row: Row) -> dict:
  """A colour for each row and its references, which are dashed or dotted."""
  if row.name == UPPER_BOUND:
    return dict(
      label=row.label, color=INK, linestyle=":", marker="", linewidth=1.6
    )
  index, rank = _place(sheet, row)
  return dict(
    label=row.label,
    color=COLORS[index],
    linestyle=("-", (0, (1, 1.2)), (0, (4, 2)))[rank],
    marker=MARKERS[index],
    markerfacecolor="white" if rank else COLORS[index],
    linewidth=1.4 if rank else 2.0,
  )


def _place(sheet, row):
  """Numbers of a row's colour and of its kind of line."""
  rows = sheet.plan.rows
  if not sheet.plan.table:  # Of any rows: one style after the other.
    rank, index = divmod(rows.index(row), len(COLORS))
    return index, rank % 3
  if sheet.plan.table == "2":
    family = lambda r: r.name.removesuffix("_adjust")
    rank = 0 if row.fixed["adjust"] else 2
  else:
    family = lambda r: r.references[0] if r.references else r.name
    compared = [name for r in rows for name in r.references]
    rank = compared.count(row.name)
  families = list(dict.fromkeys(map(family, rows)))
  return families.index(family(row)), rank


def _points(
  cells: Sequence[Cell], row: Row, readout: str
) -> Iterator[dict[str, Any]]:
  """After each phase: the accuracy of a row, mean and interval in percent."""
  of = None if readout == "reported" else readout
  accuracy = [table_cells.accuracies(cell, of) for cell in cells]
  for index, values in enumerate(zip(*accuracy, strict=True)):
    mean, half = table_cells.estimate(values)
    yield {
      "row": row.name,
      "panel": readout,
      "classes_seen": cells[0]["classes_seen"][index],
      "seeds": len(cells),
      "mean_percent": 100 * mean,
      "ci95_percent": None if half is None else 100 * half,
    }
