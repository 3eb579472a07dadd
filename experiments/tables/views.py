"""A table for people: measured numbers, the paper's beside them, and differences."""

from collections.abc import Callable, Iterator, Mapping, Sequence
import functools
import itertools
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from experiments.tables import cells as table_cells
from experiments.tables import published
from experiments.tables.cells import MOMENTS, Cell, Sheet
from experiments.tables.plan import Row
from mnemonics_jax.data.sources import title_of
from mnemonics_jax.report.render import Page, Paragraph, Section
from mnemonics_jax.report.tables import (
  REPORTED,
  Table,
  interval,
  percent,
  points,
)
from mnemonics_jax.report.words import format_duration

_QUANTITIES = {"avg_acc": "average accuracy", "forgetting": "forgetting"}
_DOUBTFUL = " †"  # Marks numbers that the paper prints otherwise elsewhere.
_MOST_PHASES = 10  # That fit beside each other.

_MEASURED = (
  "Columns “measured” come from this program: the mean over the seeds ± the"
  " half-width of its 95 % confidence interval (Student's t; none where there"
  " is one seed)"
)
_DIFFERENCES = (
  "Paired seed by seed: the row minus its reference, mean ± 95 % confidence"
  " interval, in percentage points of average accuracy; before and after the"
  " fine-tune, read out by the head and by the nearest mean of exemplars (nme)."
  " The reported read-out is marked. “less by” says how much less than the"
  " reference was forgotten."
)
_MOVES = (
  "Distance of learned exemplars to the images they began with, in the"
  " features of the network that was fixed while they moved: a line per phase,"
  " smoothed, and faintly what was measured, the mean over the seeds."
)


def page(
  sheet: Sheet,
  record: Mapping[str, Any],
  curves: Sequence[Path] = (),
  moves: Sequence[Path] = (),
) -> Page:
  """The table as a page, which becomes Markdown and HTML.

  Args:
    sheet: the cells.
    record: commands and environment.
    curves: pictures of accuracies.
    moves: pictures of the distance that exemplars move.
  """
  lead, *others = introduction(sheet)
  as_section = lambda found: Section(found[0], tables=[found[1]])
  sections = [*map(as_section, quantity_tables(sheet))]
  if notes := [*footnotes(sheet)]:
    sections.append(Section(notes=notes))
  if paired := [*map(as_section, difference_tables(sheet))]:
    other = [*filter(None, [other_beginnings(sheet)])]
    name = "Paired differences"
    sections.append(
      Section(name, text=[_DIFFERENCES], parts=paired, notes=other)
    )
  if curves:
    sections.append(Section("Curves", figures=curves, wide=True))
  if moves:
    name = "How far exemplars move"
    sections.append(Section(name, text=[_MOVES], figures=moves, wide=True))
  sections.append(Section("Where from", facts=[("", facts(sheet, record))]))
  opening = [Paragraph(lead, "lead"), *map(Paragraph, others)]
  return Page("Table", title(sheet), opening, sections=sections)


def title(sheet: Sheet) -> str:
  plan = sheet.plan
  if not plan.table:
    return plan.title
  name = title_of(plan.dataset)
  return f"Table {plan.table.upper()} on {name}, --preset={plan.preset}"


def introduction(sheet: Sheet) -> list[str]:
  """Whose numbers these are, what is reduced, and how many are still missing."""
  done = [cell for cell in sheet.cells if cell["status"] == "finished"]
  text = _of_paper(sheet, done) if sheet.plan.table else _of_study(sheet)
  if len(done) < len(sheet.cells):
    lost = sum(cell["status"] == "failed" for cell in sheet.cells)
    text.append(
      f"{len(done)} of {len(sheet.cells)} cells have finished"
      + (f", {lost} failed." if lost else ".")
    )
  return text


def _of_study(sheet):
  """The question, the rule that was there before any answer, and the settings."""
  plan = sheet.plan
  given = [f"--preset={plan.preset}"]
  given += [f"--{name}={value}" for name, value in plan.given.items()]
  return [
    f"Question: {plan.question}",
    f"Decision, written before any run: {plan.decision}",
    f"All rows: {title_of(plan.dataset)}, {' '.join(given)}, seeds"
    f" {', '.join(map(str, plan.seeds))}. Numbers are means over the seeds that have"
    " finished ± the half-width of a 95 % confidence interval (Student's t). Rows"
    " with the same method and schedule of phase 0 share its models, which the first"
    " of them trains: its minutes include that.",
  ]


def _of_paper(sheet, done):
  """Where the columns come from, and what “reduced” means in the last of them."""
  plan, name = sheet.plan, title_of(sheet.plan.dataset)
  printed = published.columns(plan.dataset)
  text = [f"The paper has no numbers for {name}, so its columns hold dashes."]
  if printed:
    text = [
      "Columns “paper” repeat what Liu et al. (CVPR 2020) print in their Table"
      f" {plan.table.upper()} for {name}, trained with their network"
      " and schedule; a dash stands where they print none."
    ]
  text[0] += f" {_MEASURED}."
  each = [cell["departures"] for cell in done]
  if any(each):
    reduced = (
      "Rows whose schedule is “reduced” can be compared with each other, not with"
      " published numbers"
    )
    everywhere = [item for item in each[0] if all(item in d for d in each)]
    somewhere = dict.fromkeys(
      item for d in each for item in d if item not in everywhere
    )
    if printed and everywhere:
      reduced += f": {', '.join(everywhere)}"
    if printed and somewhere:
      reduced += f"; in some rows {', '.join(somewhere)}"
    text.append(f"{reduced}.")
  return text


class _Column(NamedTuple):
  """A column of a table: what it says of an item, which is a row of the table."""

  group: str
  name: str
  of: Callable[[Any], str]


def _table(items: Sequence[Any], columns: Sequence[_Column]) -> Table:
  spans = itertools.groupby(column.group for column in columns)
  groups = [(name, len([*same])) for name, same in spans]
  rows = [[column.of(item) for column in columns] for item in items]
  return Table([column.name for column in columns], rows, groups=groups)


_LABEL = _Column("", "row", lambda row: row.label)


def quantity_tables(sheet: Sheet) -> list[tuple[str, Table]]:
  """What was measured, by title."""
  if not sheet.plan.table:
    each = (_of_one_n(sheet, phases) for phases in sheet.phases)
    return list(itertools.chain.from_iterable(each))
  average, forgetting = table_cells.average, table_cells.forgetting
  return [
    ("Average accuracy in percent", _beside_paper(sheet, "avg_acc", average)),
    (
      "Forgetting in percentage points",
      _beside_paper(sheet, "forgetting", forgetting),
    ),
  ]


def _beside_paper(
  sheet: Sheet, quantity: str, of: Callable[[Cell], float]
) -> Table:
  """Rows against N, measured beside the paper's.

  Args:
    sheet: the cells.
    quantity: its name in `paper_tables.yaml`.
    of: takes the quantity out of a cell.
  """

  def measured(row, phases):
    found = sheet.of(row.name, phases)
    lost = len(sheet.of(row.name, phases, "failed"))
    if not found:
      return _missing(sheet, row, phases)
    return _estimate(found, of) + (f" ({lost} failed)" if lost else "")

  def printed(row, phases):
    place = sheet.plan.table, quantity, row.paper, sheet.plan.dataset, phases
    doubt = _DOUBTFUL if published.contradiction(*place) else ""
    return percent(published.number(*place)) + doubt

  def each(about):
    """The text all N share, or one per N."""

    def text(row):
      found = [about(sheet.of(row.name, n)) or "–" for n in sheet.phases]
      return found[0] if len({*found}) == 1 else " / ".join(found)

    return text

  kinds = lambda of: lambda cells: ", ".join(dict.fromkeys(map(of, cells)))
  columns = [_LABEL]
  for n in sheet.phases:
    columns += [
      _Column(f"N = {n}", "measured", lambda row, n=n: measured(row, n)),
      _Column(f"N = {n}", "paper", lambda row, n=n: printed(row, n)),
    ]
  columns += [
    _Column("", "read-out", each(kinds(lambda cell: cell["readout"]))),
    _Column("", "seeds", each(lambda cells: str(len(cells)))),
    _Column("", "schedule", each(kinds(table_cells.schedule))),
  ]
  return _table(sheet.shown, columns)


def footnotes(sheet: Sheet) -> Iterator[str]:
  """Where the paper prints several numbers for a run of this table."""
  for quantity, name in _QUANTITIES.items() if sheet.plan.table else ():
    for row in sheet.shown:
      for phases in sheet.phases:
        place = (
          sheet.plan.table,
          quantity,
          row.paper,
          sheet.plan.dataset,
          phases,
        )
        if numbers := published.contradiction(*place):
          each = ", ".join(
            f"{percent(number)} in Table {table.upper()}"
            for table, number in numbers.items()
          )
          yield (
            f"{_DOUBTFUL.strip()} The paper contradicts itself: for {name} of"
            f" this run ({row.label}, N = {phases}) it prints {each}."
          )


def _of_one_n(sheet: Sheet, phases: int) -> Iterator[tuple[str, Table]]:
  """Everything that was measured of a study's rows, then phase by phase."""
  of = lambda row: sheet.of(row.name, phases)
  columns = [_LABEL, _Column("", "seeds", lambda row: str(len(of(row))))]
  for group, value in (("average", table_cells.average), ("last phase", _last)):
    for readout in sheet.readouts:

      def text(row, value=value, readout=readout, first=len(columns) == 2):
        found = of(row)
        if not found:
          return _missing(sheet, row, phases) if first else "–"
        mark = REPORTED if readout == found[0]["readout"] else ""
        return _estimate(found, lambda cell: value(cell, readout)) + mark

      columns.append(_Column(group, readout, text))
  minutes = lambda cell: cell["seconds"] / 60
  columns += [
    _Column(
      "forgetting",
      "reported",
      lambda row: _estimate(of(row), table_cells.forgetting),
    ),
    _Column("images", "per class", lambda row: _per_class(of(row), "images")),
    _Column("bytes", "per class", lambda row: _per_class(of(row), "bytes")),
    _Column(
      "minutes",
      "each run",
      lambda row: f"{fmean(map(minutes, of(row))):.0f}" if of(row) else "–",
    ),
  ]
  yield f"N = {phases}, in percent", _table(sheet.shown, columns)
  measured = [row for row in sheet.shown if of(row)]
  if measured and phases <= _MOST_PHASES:
    # Not N + 1 where there is no base phase.
    count = lambda row: len(of(row)[0]["classes_seen"])

    def after(row, phase):
      found = of(row) if phase < count(row) else ()
      return _estimate(found, lambda cell: table_cells.accuracies(cell)[phase])

    columns = [
      _Column("", f"phase {i}", functools.partial(after, phase=i))
      for i in range(max(map(count, measured)))
    ]
    title = f"N = {phases}, reported read-out after each phase, in percent"
    yield title, _table(measured, [_LABEL, *columns])


def _missing(sheet: Sheet, row: Row, phases: int) -> str:
  return "failed" if sheet.of(row.name, phases, "failed") else "not run"


def _per_class(cells: Sequence[Cell], name: str) -> str:
  """What is kept of a class in the end, as far as cells have noted it."""
  kept = [
    cell[f"memory_{name}"] / cell["classes_seen"][-1]
    for cell in cells
    if f"memory_{name}" in cell
  ]
  return f"{fmean(kept):,.0f}" if kept else "–"


def _last(cell: Cell, readout: str) -> float:
  return table_cells.accuracies(cell, readout)[-1]


def _estimate(cells: Sequence[Cell], of: Callable[[Cell], float]) -> str:
  if not cells:
    return "–"
  mean, half = table_cells.estimate(map(of, cells))
  return interval({"mean": mean, "ci95": half})


class _Pairs(NamedTuple):
  """Cells of a row, each with that of another row of the same seed."""

  label: str
  cells: list[tuple[Cell, Cell]]

  def difference(self, of: Callable[[Cell], float]) -> str:
    """The row minus the other, with its interval."""
    found = (of(cell) - of(reference) for cell, reference in self.cells)
    mean, half = table_cells.estimate(found)
    return points(mean) + ("" if half is None else f" ± {percent(half)}")


def _pairs(sheet: Sheet, phases: int) -> list[_Pairs]:
  """Every row with each of its references, if they have seeds in common."""
  labels = {row.name: row.label for row in sheet.plan.rows}
  return [
    _Pairs(f"{row.label} − {labels[name]}", found)
    for row in sheet.shown
    for name in row.references
    if (found := sheet.paired(row, name, phases))
  ]


def difference_tables(sheet: Sheet) -> list[tuple[str, Table]]:
  """Each row minus its references for every read-out, by N."""
  labels = {row.name: row.label for row in sheet.plan.rows}
  first, label = "row", lambda pairs: pairs.label
  references = {name for row in sheet.plan.rows for name in row.references}
  if len(references) == 1:
    shared = labels[references.pop()]
    first = f"minus {shared}"
    label = lambda pairs: pairs.label.removesuffix(f" − {shared}")
  columns = [
    _Column("", first, label),
    _Column("", "seeds", lambda pairs: str(len(pairs.cells))),
  ]
  for readout in sheet.readouts:
    for moment, name in MOMENTS.items():

      def text(pairs, readout=readout, moment=moment):
        of = lambda cell: table_cells.average(cell, readout, moment)
        reported = readout == pairs.cells[0][0]["readout"]
        marked = reported and moment == "final"
        return pairs.difference(of) + (REPORTED if marked else "")

      columns.append(_Column(readout, name, text))
  less = lambda cell: -table_cells.forgetting(cell)
  columns.append(
    _Column("forgetting", "less by", lambda pairs: pairs.difference(less))
  )
  found = [(n, _pairs(sheet, n)) for n in sheet.phases]
  return [(f"N = {n}", _table(pairs, columns)) for n, pairs in found if pairs]


def other_beginnings(sheet: Sheet) -> str:
  """Which pairs differ in phase 0 already, by schedule or by rounding; or nothing."""
  beginning = lambda cell: cell["accuracy"]["trained"]["head"][0]
  found: dict[str, set[int]] = {}
  for label, cells in itertools.chain.from_iterable(
    _pairs(sheet, phases) for phases in sheet.phases
  ):
    seeds = {a["seed"] for a, b in cells if beginning(a) != beginning(b)}
    found[label] = found.get(label, set()) | seeds
  texts = [
    f"{label} (seed{'s' * (len(seeds) > 1)} {', '.join(map(str, sorted(seeds)))})"
    for label, seeds in found.items()
    if seeds
  ]
  return f"Not from one model of phase 0: {'; '.join(texts)}." if texts else ""


def facts(sheet: Sheet, record: Mapping[str, Any]) -> dict[str, Any]:
  """How the numbers came about."""
  seconds = sum(cell.get("seconds", 0.0) for cell in sheet.cells)
  made = _keys_by(sheet, "code")
  taken = _keys_by(sheet, "study")
  code = {
    f"code {i}": f"{code}: {', '.join(keys)}"
    for i, (code, keys) in enumerate(made.items(), 1)
  }
  return {
    **{f"command {i}": c for i, c in enumerate(record["commands"], 1)},
    "duration": f"{format_duration(seconds)} of training, all cells together",
    **_machine(record.get("environment", {})),
    **({"code of all cells": next(iter(made))} if len(made) == 1 else code),
    **{f"from {study}": ", ".join(keys) for study, keys in taken.items()},
    **{
      f"failed {table_cells.key(cell)}": cell["reason"]
      for cell in sheet.cells
      if cell["status"] == "failed"
    },
  }


def _machine(environment):
  """Where cells were run; those of other studies have it there."""
  if not environment:
    return {}
  cores = environment.get("cores")
  parts = (
    environment.get("machine"),
    *environment.get("devices", ()),
    "1 core" if cores == 1 else f"{cores} cores",
  )
  return {
    "machine": ", ".join(map(str, parts)),
    "jax": environment.get("packages", {}).get("jax"),
  }


def _keys_by(sheet: Sheet, name: str) -> dict[str, list[str]]:
  """Which finished cells have each value of a field: a code, a study."""
  found: dict[str, list[str]] = {}
  for cell in sheet.cells:
    if cell["status"] == "finished" and name in cell:
      found.setdefault(cell[name], []).append(table_cells.key(cell))
  return found
