"""A table as Markdown and as a page: measured numbers beside the paper's."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from experiments.tables import cells as table_cells
from experiments.tables import differences, planned, published
from experiments.tables.cells import Cell, Sheet
from mnemonics_jax.data.sources import title_of
from mnemonics_jax.report import render
from mnemonics_jax.report.render import Page, Paragraph, Section
from mnemonics_jax.report.tables import Table, interval, percent
from mnemonics_jax.report.words import format_duration

_QUANTITIES = {"avg_acc": "average accuracy", "forgetting": "forgetting"}
_DOUBTFUL = " †"  # Marks numbers that the paper prints otherwise elsewhere.


def title(sheet: Sheet) -> str:
  if sheet.plan:
    return sheet.plan.title
  name = title_of(sheet.dataset)
  return f"Table {sheet.table.upper()} on {name}, --preset={sheet.preset}"


def introduction(sheet: Sheet) -> list[str]:
  """Whose numbers these are, what is reduced, and how many are still missing."""
  measured = (
    "Columns “measured” come from this program: the mean over the seeds ± the"
    " half-width of its 95 % confidence interval (Student's t; none where there"
    " is one seed)"
  )
  name = title_of(sheet.dataset)
  if sheet.plan:
    text = planned.introduction(sheet, sheet.plan)
  elif published.columns(sheet.dataset):
    text = [
      "Columns “paper” repeat what Liu et al. (CVPR 2020) print in their Table"
      f" {sheet.table.upper()} for {name}, trained with their network"
      f" and schedule; a dash stands where they print none. {measured}."
    ]
  else:
    text = [
      f"The paper has no numbers for {name}, so its columns hold dashes."
      f" {measured}."
    ]
  done = [cell for cell in sheet.cells if cell["status"] == "finished"]
  if not sheet.plan and any(cell["departures"] for cell in done):
    text.append(_reduced(sheet, done))
  if len(done) < len(sheet.cells):
    lost = sum(cell["status"] == "failed" for cell in sheet.cells)
    text.append(
      f"{len(done)} of {len(sheet.cells)} cells have finished"
      + (f", {lost} failed." if lost else ".")
    )
  return text


def _reduced(sheet, done):
  """What “reduced” means in the schedule column."""
  text = (
    "Rows whose schedule is “reduced” can be compared with each other, not with"
    " published numbers"
  )
  if not published.columns(sheet.dataset):
    return f"{text}."
  each = [cell["departures"] for cell in done]
  everywhere = [item for item in each[0] if all(item in d for d in each)]
  somewhere = dict.fromkeys(
    item for d in each for item in d if item not in everywhere
  )
  if everywhere:
    text += f": {', '.join(everywhere)}"
  if somewhere:
    text += f"; in some rows {', '.join(somewhere)}"
  return f"{text}."


def quantity_table(
  sheet: Sheet, quantity: str, of: Callable[[Cell], float]
) -> Table:
  """Rows against N, measured beside the paper's.

  Args:
    sheet: the cells.
    quantity: its name in `paper_tables.yaml`.
    of: takes the quantity out of a cell.
  """
  rows = []
  for row in sheet.shown:
    line, done = [row.label], []
    for phases in sheet.phases:
      found = sheet.of(row.name, phases)
      done.append(found)
      place = sheet.table, quantity, row, sheet.dataset, phases
      printed = percent(published.paper_number(*place))
      if published.contradiction(*place):
        printed += _DOUBTFUL
      line += [_measured(sheet, row.name, phases, of), printed]
    rows.append(
      [
        *line,
        _one_or_each([", ".join({c["readout"]: 0 for c in d}) for d in done]),
        _one_or_each([str(len(d)) for d in done]),
        _one_or_each(
          [", ".join({table_cells.schedule(c): 0 for c in d}) for d in done]
        ),
      ]
    )
  return Table(
    [
      "row",
      *["measured", "paper"] * len(sheet.phases),
      "read-out",
      "seeds",
      "schedule",
    ],
    rows,
    groups=[("", 1), *((f"N = {n}", 2) for n in sheet.phases), ("", 3)],
  )


def footnotes(sheet: Sheet) -> list[str]:
  """Where the paper prints several numbers for a run of this table."""
  found = []
  for quantity, name in _QUANTITIES.items():
    for row in sheet.shown:
      for phases in sheet.phases:
        numbers = published.contradiction(
          sheet.table, quantity, row, sheet.dataset, phases
        )
        if numbers:
          each = ", ".join(
            f"{percent(number)} in Table {table.upper()}"
            for table, number in numbers.items()
          )
          found.append(
            f"{_DOUBTFUL.strip()} The paper contradicts itself: for {name} of"
            f" this run ({row.label}, N = {phases}) it prints {each}."
          )
  return found


def _measured(sheet, row, phases, of):
  values = [of(cell) for cell in sheet.of(row, phases)]
  lost = len(sheet.of(row, phases, "failed"))
  if not values:
    return "failed" if lost else "not run"
  mean, half = table_cells.estimate(values)
  text = interval({"mean": mean, "ci95": half})
  return f"{text} ({lost} failed)" if lost else text


def _one_or_each(texts):
  """The text all N share, or one per N."""
  texts = [text or "–" for text in texts]
  return texts[0] if len(set(texts)) == 1 else " / ".join(texts)


def quantity_tables(sheet: Sheet) -> list[tuple[str, Table]]:
  """Average accuracy and forgetting, of the reported read-out."""
  if sheet.plan:
    return planned.measured_tables(sheet)
  return [
    (
      "Average accuracy in percent",
      quantity_table(sheet, "avg_acc", table_cells.average),
    ),
    (
      "Forgetting in percentage points",
      quantity_table(sheet, "forgetting", table_cells.forgetting),
    ),
  ]


def facts(sheet: Sheet, record: dict[str, Any]) -> dict[str, Any]:
  """How the numbers came about."""
  environment = record.get("environment", {})
  seconds = sum(cell.get("seconds", 0.0) for cell in sheet.cells)
  return {
    **{f"command {i}": c for i, c in enumerate(record["commands"], 1)},
    "duration": f"{format_duration(seconds)} of training, all cells together",
    **(_machine(environment) if environment else {}),
    **_code(sheet),
    **_taken(sheet),
    **{
      f"failed {table_cells.key(cell)}": cell["reason"]
      for cell in sheet.cells
      if cell["status"] == "failed"
    },
  }


def _machine(environment):
  """Where cells were run; those of other studies have it there."""
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


def _taken(sheet):
  """Which cells other studies have measured."""
  taken = {}
  for cell in sheet.cells:
    if study := cell.get("study"):
      taken.setdefault(f"from {study}", []).append(table_cells.key(cell))
  return {study: ", ".join(keys) for study, keys in taken.items()}


def _code(sheet):
  """Which cells each state of the code has made."""
  made = {}
  for cell in sheet.cells:
    if cell["status"] == "finished":
      made.setdefault(cell["code"], []).append(table_cells.key(cell))
  if len(made) == 1:
    return {"code of all cells": next(iter(made))}
  return {
    f"code {i}": f"{code}: {', '.join(keys)}"
    for i, (code, keys) in enumerate(made.items(), 1)
  }


def markdown(
  sheet: Sheet,
  record: dict[str, Any],
  curves: Sequence[Path] = (),
  moves: Sequence[Path] = (),
) -> str:
  """The table as a Markdown document, beside its pictures."""
  directory = next((path.parent for path in (*curves, *moves)), Path())
  return render.markdown(page(sheet, record, curves, moves), directory)


def html(
  sheet: Sheet,
  record: dict[str, Any],
  curves: Sequence[Path] = (),
  moves: Sequence[Path] = (),
) -> str:
  """The table as one page that holds everything, beside its pictures."""
  directory = next((path.parent for path in (*curves, *moves)), Path())
  return render.html(page(sheet, record, curves, moves), directory)


def page(
  sheet: Sheet,
  record: dict[str, Any],
  curves: Sequence[Path],
  moves: Sequence[Path],
) -> Page:
  """The table as a page.

  Args:
    sheet: the cells.
    record: commands and environment.
    curves: pictures of accuracies.
    moves: pictures of the distance that exemplars move.
  """
  lead, *others = introduction(sheet)
  sections = [
    Section(name, tables=[table]) for name, table in quantity_tables(sheet)
  ]
  if notes := footnotes(sheet):
    sections.append(Section(notes=notes))
  if paired := differences.difference_tables(sheet):
    parts = [Section(name, tables=[table]) for name, table in paired]
    other = filter(None, [differences.other_beginnings(sheet)])
    text = [differences.NOTE]
    words = "Paired differences"
    sections.append(Section(words, text=text, parts=parts, notes=[*other]))
  note = (
    "Distance of learned exemplars to the images they began with, in the"
    " features of the network that was fixed while they moved: a line per phase,"
    " smoothed, and faintly what was measured, the mean over the seeds."
  )
  sections += [
    Section(name, text=text, figures=found, wide=True)
    for name, text, found in (
      ("Curves", [], curves),
      ("How far exemplars move", [note], moves),
    )
    if found
  ]
  sections.append(Section("Where from", facts=[("", facts(sheet, record))]))
  opening = [Paragraph(lead, "lead"), *map(Paragraph, others)]
  return Page("Table", title(sheet), opening, sections=sections)
