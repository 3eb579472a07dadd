"""Figures of a table, seeds merged: curves (4, S1), moving exemplars (S2)."""

from collections.abc import Iterator, Sequence
import contextlib
from pathlib import Path
import statistics

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.tables import cells as table_cells
from experiments.tables.cells import Cell, Sheet
from experiments.tables.rows import UPPER_BOUND, Row
from mnemonics_jax.report import drawing, words
from mnemonics_jax.report.changes import measured
from mnemonics_jax.report.distances import side_by_side
from mnemonics_jax.report.drawing import COLORS, INK, MARKERS, Drawing, number
from mnemonics_jax.report.merging import merge_seeds
from mnemonics_jax.runs import Run, WorkdirError, load_run

_PANELS = {None: "reported read-out", "nme": "nearest mean of exemplars (nme)"}


def write(sheet: Sheet, root: Path, path: Path) -> None:
  """Draws, with the numbers of each picture as CSV.

  Args:
    sheet: the cells.
    root: where their runs are.
    path: what paths of files begin with.
  """
  with matplotlib.rc_context(drawing.STYLE):
    for item in (*curves(sheet, path.name), *moves(sheet, root, path.name)):
      drawing.save(item, path.parent)


def names(sheet: Sheet, name: str) -> tuple[list[str], list[str]]:
  """Of the curves, and of the pictures of moving exemplars; all may lack."""
  return (
    [f"{name}_n{phases}" for phases in sheet.phases],
    [f"{name}_distances_{row.name}" for row in sheet.shown],
  )


def moves(sheet: Sheet, root: Path, name: str) -> Iterator[Drawing]:
  """For every row that learns exemplars: how far they move, by N."""
  for row in sheet.shown:
    by_phases = {
      phases: merge_seeds(_runs(root, sheet.of(row.name, phases)))
      for phases in sheet.phases
    }
    # Of runs that are not alike in all but their seeds, the first is shown.
    runs = {n: found[0] for n, found in by_phases.items() if found}
    runs = {n: r for n, r in runs.items() if measured(r, "exemplars")}
    if runs:
      titles = [f"N = {phases}" for phases in runs]
      yield side_by_side(
        f"{name}_distances_{row.name}", [*runs.values()], titles
      )


def _runs(root: Path, cells: Sequence[Cell]) -> list[Run]:
  """Those that are still there: of others the table has the numbers."""
  found = []
  for cell in cells:
    with contextlib.suppress(WorkdirError):
      found.append(load_run(root / cell["workdir"]))
  return found


def curves(sheet: Sheet, name: str) -> Iterator[Drawing]:
  """One figure per N: mean over seeds, ribbons are 95 % intervals."""
  for phases in sheet.phases:
    shown = [row for row in sheet.shown if sheet.of(row.name, phases)]
    if not shown:
      continue
    figure = Figure(
      figsize=(9.6, 4.0 + 0.22 * ((len(shown) + 2) // 3)), layout="constrained"
    )
    panels = figure.subplots(1, len(_PANELS), sharey=True)
    lines = []
    for axes, (readout, text) in zip(panels, _PANELS.items(), strict=True):
      axes.set_title(text)
      axes.set_xlabel("classes learned so far")
      for row in shown:
        style = _style(sheet, row)
        lines += _curve(axes, sheet, row, phases, readout, style)
    panels[0].set_ylabel("accuracy on all of them (%)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3)
    yield Drawing(
      f"{name}_n{phases}",
      figure,
      ["row", "panel", "classes_seen", "seeds", "mean_percent", "ci95_percent"],
      lines,
      _ends(sheet, shown, phases),
    )


def _ends(sheet: Sheet, rows: Sequence[Row], phases: int) -> str:
  """The accuracy of every row after the last phase, in words."""
  ends = []
  for row in rows:
    cells = sheet.of(row.name, phases)
    last = [c["accuracy"]["final"][c["readout"]][-1] for c in cells]
    ends.append(f"{words.share(statistics.fmean(last))} ({row.label})")
  return (
    f"N = {phases}: after the last phase the reported read-out has "
    f"{words.listed(ends, most=len(ends))}."
  )


def _style(sheet: Sheet, row: Row) -> dict:
  """A colour for each row and its references, which are dashed or dotted."""
  if row.name == UPPER_BOUND:
    return dict(color=INK, linestyle=":", marker="", linewidth=1.6)
  index, rank = _place(sheet, row)
  return dict(
    color=COLORS[index],
    linestyle=("-", (0, (1, 1.2)), (0, (4, 2)))[rank],
    marker=MARKERS[index],
    markerfacecolor="white" if rank else COLORS[index],
    linewidth=1.4 if rank else 2.0,
  )


def _place(sheet, row):
  """Numbers of a row's colour and of its kind of line."""
  if sheet.plan:  # Of any rows: one style after the other.
    rank, index = divmod(sheet.rows.index(row), len(COLORS))
    return index, rank % 3
  if sheet.table == "2":
    family = lambda r: r.name.removesuffix("_adjust")
    rank = 0 if row.fixed["adjust"] else 2
  else:
    family = lambda r: r.references[0] if r.references else r.name
    compared = [name for r in sheet.rows for name in r.references]
    rank = compared.count(row.name)
  families = list(dict.fromkeys(map(family, sheet.rows)))
  return families.index(family(row)), rank


def _curve(
  axes: Axes,
  sheet: Sheet,
  row: Row,
  phases: int,
  readout: str | None,
  style: dict,
) -> list[list]:
  cells = sheet.of(row.name, phases)
  accuracy = [c["accuracy"]["final"][readout or c["readout"]] for c in cells]
  estimates = [table_cells.estimate(v) for v in zip(*accuracy, strict=True)]
  classes = cells[0]["classes_seen"]
  mean = [100 * m for m, _ in estimates]
  axes.plot(classes, mean, label=row.label, zorder=3, **style)
  half = [100 * (h or 0.0) for _, h in estimates]
  if any(half):
    axes.fill_between(
      classes,
      [max(m - h, 0.0) for m, h in zip(mean, half, strict=True)],
      [min(m + h, 100.0) for m, h in zip(mean, half, strict=True)],
      color=style["color"],
      alpha=0.14,
      linewidth=0,
    )
  if len(classes) <= 12:
    axes.set_xticks(classes)
  return [
    [
      row.name,
      readout or "reported",
      seen,
      len(cells),
      number(m, 100.0),
      number(h, 100.0),
    ]
    for seen, (m, h) in zip(classes, estimates, strict=True)
  ]
