"""Paired differences, worked out by hand."""

import pytest
from support import tables

from experiments.tables import cells as table_cells
from experiments.tables import differences


def cell(row, seed, head, nme=0.5, before=0.4, forgotten=0.1, base=0.7):
  return table_cells.pending(row, 5, seed, "") | {
    "status": "finished",
    "readout": "head",
    "average": {
      "trained": {"head": before, "nme": nme},
      "final": {"head": head, "nme": nme},
    },
    "accuracy": {"trained": {"head": [base, 0.1]}},
    "forgetting": {"head": forgotten, "nme": 0.0},
  }


@pytest.fixture
def rows(tmp_path):
  return {row.name: row for row in tables.request(tmp_path).rows}


def sheet(rows, cells):
  return table_cells.Sheet("2", "digits", "short", [*rows.values()], cells)


def test_pairs_are_subtracted_seed_by_seed(rows):
  herding, mnemonics = rows["herding"], rows["mnemonics"]
  found = differences.difference_table(
    sheet(rows, [
      cell(herding, 0, 0.60), cell(herding, 1, 0.70), cell(herding, 2, 0.1),
      # Seed 2 has no partner; 1 and 3 points more; 4 and 2 less forgotten.
      cell(mnemonics, 0, 0.61, nme=0.52, before=0.39, forgotten=0.06),
      cell(mnemonics, 1, 0.73, nme=0.52, before=0.39, forgotten=0.08),
    ]),
    5,
  )  # fmt: skip
  assert found.header[0] == "minus herding, not adjusted"
  (row,) = found.rows
  # The half-width of two numbers one point from their mean: 12.706 points.
  assert row == [
    "mnemonics, not adjusted", "2", "−1.00 ± 0.00",
    "+2.00 ± 12.71" + differences.REPORTED,
    "+2.00 ± 0.00", "+2.00 ± 0.00", "+3.00 ± 12.71",
  ]  # fmt: skip


def test_one_seed_has_no_interval(rows):
  cells = [cell(rows["herding"], 0, 0.6), cell(rows["mnemonics"], 0, 0.5)]
  (row,) = differences.difference_table(sheet(rows, cells), 5).rows
  assert row[3] == "−10.00" + differences.REPORTED


def test_without_pairs_there_is_no_table(rows):
  alone = sheet(rows, [cell(rows["herding"], 0, 0.6)])
  assert differences.difference_table(alone, 5) is None
  assert differences.difference_tables(alone) == []


def test_pairs_of_other_models_of_phase_0_are_told(rows):
  herding, mnemonics = rows["herding"], rows["mnemonics"]
  cells = [cell(herding, seed, 0.6) for seed in (0, 1, 2)]
  alike = [cell(mnemonics, seed, 0.7) for seed in (0, 1)]
  assert differences.other_beginnings(sheet(rows, cells + alike)) == ""
  other = cell(mnemonics, 2, 0.7, base=0.701)
  assert differences.other_beginnings(sheet(rows, [*cells, *alike, other])) == (
    "Not from one model of phase 0: mnemonics, not adjusted − herding, not"
    " adjusted (seed 2)."
  )
