"""`experiments.tables`: the table that flags ask for is filled and printed."""

import pytest
from support import command, tables

from experiments.tables import filling


@pytest.fixture
def filled(monkeypatch):
  """Every run is there already, as made up; returns what was asked for."""
  asked = []

  def run(task, dataset, options):
    asked.append((task.settings, dataset.name, options))
    raise AssertionError("nothing is to be run")

  monkeypatch.setattr(filling, "_run", run)
  return asked


def test_finished_cells_are_printed_and_not_run_again(
  tmp_path, filled, monkeypatch
):
  from mnemonics_jax import data

  digits = data.load("digits")
  monkeypatch.chdir(tmp_path)
  flags = dict(rows="herding,mnemonics", seeds="0,1", phases="2")
  request = tables.request(tmp_path / "runs", **flags)
  tables.make_up(request, data=digits.checksum)
  given = [f"--{name}={value}" for name, value in flags.items()]
  done = command.call("tables", "--table=2", *given, cwd=tmp_path)
  assert not done.code, done.err
  assert not filled
  assert "4 cells, of which 4 have finished" in done.out
  # Seeds 0 and 1 have 80 and 78; mnemonics 1 and 2 points more.
  assert "| herding, not adjusted | 79.00" in done.out
  assert "| mnemonics, not adjusted | 2 |" in done.out
  assert f"Table: runs/tables/{request.name}.html" in done.out


def test_a_table_needs_its_name(tmp_path):
  done = command.call("tables", cwd=tmp_path)
  command.assert_refused(done, "--table is missing")
