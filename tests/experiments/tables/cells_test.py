"""Cells: what a run leaves in a table, and how they find each other."""

import pytest
from support import report_fixture, tables

from experiments.tables import cells as table_cells
from experiments.tables.cells import Sheet
from mnemonics_jax import runs


@pytest.fixture
def cell(tmp_path):
  row = tables.request(tmp_path).rows[0]
  return table_cells.pending(row, 2, 1, "a_directory")


def test_a_finished_run_becomes_a_cell(tmp_path, cell):
  done = runs.load_run(report_fixture.write(tmp_path / "run", seeds=(1,)))
  found = table_cells.finished(cell, done)
  assert table_cells.key(found) == "random/n2/seed_1"
  assert (found["status"], found["workdir"]) == ("finished", "a_directory")
  assert found["classes_seen"] == [3, 4, 5]
  assert found["accuracy"]["final"]["head"] == pytest.approx([0.88, 0.78, 0.68])
  # The fine-tune has added 4 points after phases 1 and 2.
  assert found["accuracy"]["trained"]["nme"] == pytest.approx(
    [0.83, 0.69, 0.59]
  )
  assert table_cells.average(found) == pytest.approx(0.78)
  assert table_cells.average(found, "nme") == pytest.approx(0.73)
  before = table_cells.average(found, "head", "trained")
  assert before == pytest.approx(0.78 - 0.08 / 3)
  assert table_cells.forgetting(found) == pytest.approx(0.10)
  assert found["seconds"] == 3 * 2.5


def test_a_failed_cell_keeps_the_reason(cell):
  found = table_cells.failed(cell, "loss is NaN")
  assert (found["status"], found["reason"]) == ("failed", "loss is NaN")
  assert cell["status"] == "pending"


@pytest.fixture
def sheet(tmp_path):
  """Herding with seeds 2, 0, 1; mnemonics with 1, 3 and a failed 0."""
  rows = {row.name: row for row in tables.request(tmp_path).rows}

  def made(name, seed, status="finished"):
    cell = table_cells.pending(rows[name], 2, seed, "")
    return cell | {"status": status}

  cells = [made("herding", seed) for seed in (2, 0, 1)]
  cells += [made("mnemonics", seed) for seed in (3, 1)]
  cells.append(made("mnemonics", 0, "failed"))
  return Sheet("2", "digits", "short", tuple(rows.values()), cells)


def test_cells_of_a_row_are_sorted_by_seed(sheet):
  seeds = lambda *place: [cell["seed"] for cell in sheet.of(*place)]
  assert seeds("herding", 2) == [0, 1, 2]
  assert seeds("mnemonics", 2, "failed") == [0]
  assert seeds("herding", 5) == []
  assert sheet.phases == [2]
  assert [row.name for row in sheet.shown] == ["herding", "mnemonics"]


def test_a_cell_is_paired_with_the_reference_of_its_seed(sheet):
  by_name = {row.name: row for row in sheet.rows}
  pairs = sheet.paired(by_name["mnemonics"], "herding", 2)
  assert [(a["row"], b["row"], a["seed"], b["seed"]) for a, b in pairs] == [
    ("mnemonics", "herding", 1, 1)
  ]
  assert sheet.paired(by_name["mnemonics"], "random", 2) == []


def test_estimates_are_students():
  mean, half = table_cells.estimate([0.80, 0.78, 0.76])
  # t(2) = 4.303 times 2 / sqrt(3).
  assert (mean, half) == pytest.approx((0.78, 0.04968), abs=1e-5)
  assert table_cells.estimate([0.5]) == (0.5, None)
