"""Paired differences: each row of a table minus those it is compared with."""

from collections.abc import Sequence

from experiments.tables import cells as table_cells
from experiments.tables.cells import MOMENTS, Cell, Estimate, Sheet
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report.tables import REPORTED, Table, percent, points

NOTE = (
  "Paired seed by seed: the row minus its reference, mean ± 95 % confidence"
  " interval, in percentage points of average accuracy; before and after the"
  " fine-tune, read out by the head and by the nearest mean of exemplars (nme)."
  " The reported read-out is marked. “less by” says how much less than the"
  " reference was forgotten."
)


def difference_tables(sheet: Sheet) -> list[tuple[str, Table]]:
  return [
    (f"N = {phases}", found)
    for phases in sheet.phases
    if (found := difference_table(sheet, phases))
  ]


def difference_table(sheet: Sheet, phases: int) -> Table | None:
  """Each row minus its references for every read-out; None without pairs."""
  labels = {row.name: row.label for row in sheet.rows}
  references = {name for row in sheet.rows for name in row.references}
  shared = len(references) == 1
  rows = []
  for row in sheet.shown:
    for reference in row.references:
      pairs = sheet.paired(row, reference, phases)
      if pairs:
        minus = "" if shared else f" − {labels[reference]}"
        rows.append([row.label + minus, *_difference(pairs)])
  first = f"minus {labels[references.pop()]}" if shared else "row"
  header = [first, "seeds", *[*MOMENTS.values()] * len(READOUTS), "less by"]
  groups = [("", 2), *((name, 2) for name in READOUTS), ("forgetting", 1)]
  return Table(header, rows, groups=groups) if rows else None


def other_beginnings(sheet: Sheet) -> str:
  """Which pairs differ in phase 0 already, by schedule or by rounding; or nothing."""
  labels = {row.name: row.label for row in sheet.rows}
  found = []
  for row in sheet.shown:
    for name in row.references:
      seeds = {
        cell["seed"]
        for phases in sheet.phases
        for cell, reference in sheet.paired(row, name, phases)
        if _beginning(cell) != _beginning(reference)
      }
      if seeds:
        which = (
          f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))}"
        )
        found.append(f"{row.label} − {labels[name]} ({which})")
  if not found:
    return ""
  return f"Not from one model of phase 0: {'; '.join(found)}."


def _beginning(cell: Cell) -> float:
  return cell["accuracy"]["trained"]["head"][0]


def _difference(pairs: Sequence[tuple[Cell, Cell]]) -> list[str]:
  """The number of seeds, then every difference with its interval."""
  line = [str(len(pairs))]
  for readout in READOUTS:
    for moment in MOMENTS:
      found = table_cells.estimate(
        table_cells.average(cell, readout, moment)
        - table_cells.average(reference, readout, moment)
        for cell, reference in pairs
      )
      reported = readout == pairs[0][0]["readout"] and moment == "final"
      line.append(_signed(found) + (REPORTED if reported else ""))
  found = table_cells.estimate(
    table_cells.forgetting(reference) - table_cells.forgetting(cell)
    for cell, reference in pairs
  )
  return [*line, _signed(found)]


def _signed(found: Estimate) -> str:
  mean, half = found
  return points(mean) + ("" if half is None else f" ± {percent(half)}")
