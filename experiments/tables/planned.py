"""What a table of a plan shows: what was asked, and all that was measured."""

from collections.abc import Callable
import statistics

from experiments.tables import cells as table_cells
from experiments.tables.cells import Cell, Sheet
from experiments.tables.plan import Plan
from mnemonics_jax.data.sources import title_of
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report.tables import REPORTED, Table, interval

_MOST_PHASES = 10  # That fit beside each other.


def introduction(sheet: Sheet, plan: Plan) -> list[str]:
  """The question, the rule that was there before any answer, and the settings."""
  given = [f"--preset={plan.preset}"]
  given += [f"--{name}={value}" for name, value in plan.settings.items()]
  return [
    f"Question: {plan.question}",
    f"Decision, written before any run: {plan.decision}",
    f"All rows: {title_of(sheet.dataset)}, {' '.join(given)}, seeds"
    f" {', '.join(map(str, plan.seeds))}. Numbers are means over the seeds that have"
    " finished ± the half-width of a 95 % confidence interval (Student's t). Rows"
    " with the same method and schedule of phase 0 share its models, which the first"
    " of them trains: its minutes include that.",
  ]


def measured_tables(sheet: Sheet) -> list[tuple[str, Table]]:
  """For each N averages, forgetting, bytes and minutes; then phase by phase."""
  tables = []
  for n in sheet.phases:
    tables.append((f"N = {n}, in percent", _measured(sheet, n)))
    if by_phase := _by_phase(sheet, n):
      title = f"N = {n}, reported read-out after each phase, in percent"
      tables.append((title, by_phase))
  return tables


def _measured(sheet, phases):
  rows = []
  for row in sheet.shown:
    found = sheet.of(row.name, phases)
    if not found:
      status = "failed" if sheet.of(row.name, phases, "failed") else "not run"
      rows.append([row.label, "0", status, *["–"] * 7])
      continue
    line = [row.label, str(len(found))]
    for of in (table_cells.average, _last):
      for readout in READOUTS:
        mark = REPORTED if readout == found[0]["readout"] else ""
        line.append(_estimate(found, lambda c, f=of, r=readout: f(c, r)) + mark)
    minutes = statistics.fmean(cell["seconds"] for cell in found) / 60
    line.append(_estimate(found, table_cells.forgetting))
    kept = [_per_class(found, name) for name in ("images", "bytes")]
    rows.append([*line, *kept, f"{minutes:.0f}"])
  header = [
    "row",
    "seeds",
    *[*READOUTS] * 2,
    "reported",
    *["per class"] * 2,
    "each run",
  ]
  groups = [("", 2), ("average", 2), ("last phase", 2)]
  groups += [("forgetting", 1), ("images", 1), ("bytes", 1), ("minutes", 1)]
  return Table(header, rows, groups=groups)


def _by_phase(sheet, phases):
  """Accuracies phase by phase; None where those are too many to read."""
  rows = [
    [row.label, *(_estimate(found, _reported(i)) for i in range(_count(found)))]
    for row in sheet.shown
    if phases <= _MOST_PHASES and (found := sheet.of(row.name, phases))
  ]
  if not rows:
    return None
  most = max(map(len, rows))
  header = ["row", *(f"phase {i}" for i in range(most - 1))]
  return Table(header, [[*row, *["–"] * (most - len(row))] for row in rows])


def _count(cells: list[Cell]) -> int:
  """Phases of a run: not N + 1 where there is no base phase."""
  return len(cells[0]["classes_seen"])


def _reported(phase: int) -> Callable[[Cell], float]:
  """What a cell reports of a phase."""
  return lambda cell: cell["accuracy"]["final"][cell["readout"]][phase]


def _per_class(cells: list[Cell], name: str) -> str:
  """What is kept of a class in the end, as far as cells have noted it."""
  kept = [
    cell[f"memory_{name}"] / cell["classes_seen"][-1]
    for cell in cells
    if f"memory_{name}" in cell
  ]
  return f"{statistics.fmean(kept):,.0f}" if kept else "–"


def _last(cell: Cell, readout: str) -> float:
  return cell["accuracy"]["final"][readout][-1]


def _estimate(cells: list[Cell], of: Callable[[Cell], float]) -> str:
  mean, half = table_cells.estimate(of(cell) for cell in cells)
  return interval({"mean": mean, "ci95": half})
