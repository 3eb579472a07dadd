"""Which cells are run, what happens when one cannot be, and what is written."""

import json
import shutil

import pytest
from support import command, report_fixture, tables

from experiments import running
from experiments.tables import fill as fill_lib
from experiments.tables.fill import fill
from mnemonics_jax import data
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.runs import BusyError, Stopped


@pytest.fixture(scope="module")
def digits():
  return data.load("digits")


class Runs:
  """Instead of `running.run`: notes what was started, and makes up results.

  Args:
    errors: by (exemplars, seed), raised instead.
    before: called before a run.
  """

  def __init__(self, errors=(), before=lambda: None):
    self.started, self._errors, self._before = [], dict(errors), before

  def __call__(self, settings, _, workdir, **options):
    assert options["base_models"] == workdir.parent / "base_models"
    self._before()
    (seed,) = settings.seeds
    self.started.append((settings.exemplars, seed))
    if self.started[-1] in self._errors:
      raise self._errors[self.started[-1]]
    better = 0.1 if settings.rehearsal == "4" else 0.0
    kept = dict(exemplars=settings.exemplars, offset=better)
    report_fixture.write(workdir, seeds=(seed,), **kept)


@pytest.fixture
def run(monkeypatch):
  """Puts something in the place of every run, which must not begin by default."""
  put = lambda instead: monkeypatch.setattr(running, "run", instead) or instead
  put(Runs(before=lambda: pytest.fail("a finished cell was run again")))
  return put


def test_finished_cells_are_printed_and_not_run_again(tmp_path, digits, run):
  flags = dict(rows="herding,mnemonics", seeds="0,1", phases="2")
  plan = tables.table(tmp_path / "runs", **flags)
  tables.make_up(plan, data=digits.checksum)
  given = [f"--{name}={value}" for name, value in flags.items()]
  done = command.call("tables", "--table=2", *given, cwd=tmp_path)
  assert not done.code, done.err
  assert "4 cells, of which 4 have finished" in done.out
  # Seeds 0 and 1 have 80 and 78; mnemonics 1 and 2 points more.
  assert "| herding, not adjusted | 79.00" in done.out
  assert "| mnemonics, not adjusted | 2 |" in done.out
  assert f"Table: runs/tables/{plan.name}.html" in done.out


def test_a_failing_cell_does_not_stop_the_others(tmp_path, digits, run, capsys):
  plan = tables.table(
    tmp_path, rows="herding,mnemonics", seeds="0,1", phases="2"
  )
  error = UserError("", "seed 0: the loss is not finite", "lower `batch_size`")
  runs = run(Runs({("herding", 0): error}))
  fill(plan, digits)
  assert runs.started == [
    (kind, seed) for seed in (0, 1) for kind in ("herding", "mnemonics")
  ]
  record, text, _ = tables.written(plan)
  assert "78.00 (1 failed)" in text
  assert record["cells"]["herding/n2/seed_0"]["reason"] == (
    "seed 0: the loss is not finite; lower --batch_size."
  )
  output = capsys.readouterr().out
  assert "Cell 1 of 4: herding, not adjusted · N = 2 · seed 0" in output
  assert "Cell 4 of 4" in output and "left" in output

  # Again: only the failed one is tried, and now it works.
  runs = run(Runs())
  fill(plan, digits)
  assert runs.started == [("herding", 0)]
  assert "failed" not in tables.written(plan)[1]


@pytest.mark.parametrize(
  "error",
  [DiskError("", "full", "make room"), Stopped(143), OSError("no such device")],
)
def test_what_would_stop_every_cell_stops_the_table(
  tmp_path, digits, run, error
):
  plan = tables.table(tmp_path, rows="herding", seeds="0,1", phases="2")
  runs = run(Runs({("herding", 0): error}))
  with pytest.raises(type(error)):
    fill(plan, digits)
  assert runs.started == [("herding", 0)]


def test_a_cell_that_another_command_runs_is_left_to_it(
  tmp_path, digits, run, capsys
):
  plan = tables.table(tmp_path, rows="herding", seeds="0,1", phases="2")
  busy = BusyError("workdir", "`root=here` is in use", "wait")
  run(Runs({("herding", 0): busy}))
  fill(plan, digits)
  cells = tables.written(plan)[0]["cells"]
  status = [cells[f"herding/n2/seed_{seed}"]["status"] for seed in (0, 1)]
  assert status == ["pending", "finished"]
  out = capsys.readouterr().out
  assert "Left to another command: --root=here is in use; wait." in out


@pytest.mark.parametrize(
  "error",
  [
    BusyError("workdir", "in use", "wait"),
    MemoryError("Here it failed, and there it was tried again."),
  ],
)
def test_a_cell_that_another_command_has_ended_meanwhile_counts(
  tmp_path, digits, run, error
):
  plan = tables.table(tmp_path, rows="herding", seeds="0,1", phases="2")
  elsewhere = lambda: tables.make_up(plan, data=digits.checksum)
  run(Runs({("herding", 0): error}, before=elsewhere))
  sheet = fill(plan, digits)
  assert [cell["status"] for cell in sheet.cells] == ["finished"] * 2


def test_a_run_of_other_code_does_not_replace_what_was_written(
  tmp_path, digits, run
):
  """Pairs would no longer share their model of phase 0."""
  plan = tables.table(tmp_path, rows="herding", seeds="0", phases="2")
  tables.make_up(plan, data=digits.checksum)
  (before,) = fill(plan, digits).cells
  (workdir,) = (plan.workdir(*c, digits.checksum) for c in plan.cells())
  shutil.rmtree(workdir)
  report_fixture.write(workdir, seeds=(0,), exemplars="herding", offset=0.05)
  config = json.loads((workdir / "config.json").read_text())
  config["environment"]["git_commit"] = "fedcba9"
  (workdir / "config.json").write_text(json.dumps(config))
  assert fill(plan, digits).cells == [before]
  (workdir / "results.json").unlink()  # It was interrupted.
  assert fill(plan, digits).cells == [before]


@pytest.mark.parametrize("name", ["results.json", "config.json"])
def test_a_cell_with_a_damaged_file_is_run_again_which_mends_it(
  tmp_path, digits, run, name
):
  plan = tables.table(tmp_path, rows="herding", seeds="0,1", phases="2")
  tables.make_up(plan, data=digits.checksum)
  cell = *next(iter(plan.cells())), digits.checksum
  (plan.workdir(*cell) / name).write_text("{")
  runs = run(Runs())
  fill(plan, digits)
  assert runs.started == [("herding", 0)]


def test_what_cannot_be_run_is_refused_before_anything_is(
  tmp_path, digits, run
):
  plan = tables.table(tmp_path, rows="herding", seeds="0", phases="9")
  with pytest.raises(UserError, match="`phases=9`"):
    fill(plan, digits)
  assert not list(tmp_path.iterdir())


def test_phase_0_is_expected_once_for_those_who_share_it(tmp_path, digits):
  rows = {
    "first": {"settings": {}},
    "same": {"settings": {"rehearsal": 4, "distill": False}},
    "longer": {"settings": {"base_epochs": 6}},
    "fewer": {"settings": {"base_classes": 4}},
    "other": {"settings": {"order_seed": 3}},
  }
  work = fill_lib._work(tables.study(tmp_path, changes={"rows": rows}), digits)
  of = lambda row, seed=0: work[f"{row}/n2/seed_{seed}"]
  # The first five of the order have 719 images: 12 steps of 64 in each of 3 epochs.
  assert of("first") - of("same") == pytest.approx(3 * 12)
  assert of("longer") - of("first") == pytest.approx(3 * 12)
  assert of("fewer") > of("same") < of("other")
  assert all(of(row) == of(row, 1) for row in rows)


def test_cells_are_run_once_and_share_the_base_model(
  tmp_path, digits, monkeypatch
):
  plan = tables.table(
    tmp_path, table="1", rows="lucir", seeds="0", phases="1", preset="smoke",
    epochs="1", base_epochs="1", images_per_class="8", memory="per_class:2",
    batch_size="16",
  )  # fmt: skip
  fill(plan, digits)
  cell = tables.written(plan)[0]["cells"]["lucir/n1/seed_0"]
  assert cell["status"] == "finished" and cell["classes_seen"] == [5, 10]
  path = tmp_path / cell["workdir"] / "results.json"
  (found,) = json.loads(path.read_text())["runs"]
  head = [phase["accuracy"]["head"] for phase in found["phases"]]
  assert cell["average"]["final"]["head"] == pytest.approx(sum(head) / 2)
  assert len(list((tmp_path / "base_models").iterdir())) == 1
  monkeypatch.setattr(running, "run", lambda *_, **__: pytest.fail("again"))
  fill(plan, digits)


@pytest.fixture
def measured(tmp_path, digits, run):
  """A study whose rows have made-up runs; the second is 10 points better."""
  runs, plan = run(Runs()), tables.study(tmp_path)
  fill(plan, digits)
  return plan, runs.started


def test_what_is_measured_stands_beside_the_study(measured):
  plan, started = measured
  assert len(started) == 4
  _, text, _ = tables.written(plan)
  # Seeds 0 and 1 have 80 and 78 (tests/support/report_fixture.py).
  assert "| once | 2 | **79.00 ±" in text
  assert "| four times | 2 | **89.00 ±" in text
  assert plan.file("_n2.png").exists()


def test_written_cells_outlive_their_runs(measured, digits, tmp_path):
  """The study goes on elsewhere with its JSON alone."""
  plan, started = measured
  before, *_ = tables.written(plan)
  (tmp_path / "runs").rename(tmp_path / "gone")
  fill(plan, digits)
  assert len(started) == 4
  assert tables.written(plan)[0]["cells"] == before["cells"]
  # Another number of epochs makes other numbers.
  changed = {"settings": {"exemplars": "herding", "epochs": 3}}
  fill(tables.study(tmp_path, changes=changed), digits)
  assert len(started) == 8
  # What was measured before waits until it is asked for again, here or elsewhere.
  rows = {"same": tables.STUDY["rows"]["once"]}
  fill(tables.study(tmp_path, "other", {"rows": rows}), digits)
  fill(plan, digits)
  assert len(started) == 8


def test_what_a_study_beside_it_has_measured_is_taken_over(
  measured, digits, tmp_path
):
  """Equal settings are run once, whatever the rows are called."""
  plan, started = measured
  (tmp_path / "runs").rename(tmp_path / "gone")
  rows = {
    "same": tables.STUDY["rows"]["once"],
    "two": {"settings": {"rehearsal": 2}, "minus": ["same"]},
  }
  changes = {"rows": rows, "seeds": [0, 1, 2]}
  other = tables.study(tmp_path, "other", changes)
  fill(other, digits)
  # Row two with three seeds, and row same with the one that is new.
  assert len(started) == 4 + 4
  cells, text = tables.written(other)[0]["cells"], tables.written(other)[1]
  before = tables.written(plan)[0]["cells"]
  for seed in (0, 1):
    known = before[f"once/n2/seed_{seed}"]
    taken = known | {"row": "same", "study": "often"}
    assert cells[f"same/n2/seed_{seed}"] == taken
  assert "study" not in cells["same/n2/seed_2"]
  assert "- from often: `same/n2/seed_0, same/n2/seed_1`" in text
  # Of those that have measured it, the study with more of its cells is asked, and
  # none that has taken them over.
  cell = before["once/n2/seed_0"] | {"row": "same", "code": "other"}
  copies = {
    key: cell | {"study": "gone"}
    for key, cell in before.items()
    if key.startswith("once")
  }
  for name, there in [("a", {"x": cell}), ("z", {"x": cell}), ("zz", copies)]:
    few = {"rows": {"same": rows["same"]}}
    path = tables.write_study(tmp_path / f"{name}.yaml", **few)
    record = {"commands": ["x"], "environment": {}, "cells": there}
    path.with_suffix(".json").write_text(json.dumps(record))
  other.file(".json").unlink()
  shutil.rmtree(tmp_path / "runs")
  sheet = fill(other, digits)
  assert {cell.get("study") for cell in sheet.cells} == {"often", None}
  assert len(started) == 8 + 4
  # A damaged record of another study costs no more than what it knew.
  plan.file(".json").write_text("{")
  fill(other, digits)
  assert len(started) == 12
