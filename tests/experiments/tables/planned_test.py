"""What a plan's table shows, from made-up runs."""

import json
import shutil

import pytest
from support import report_fixture, tables
from support.plans import PLAN, request, write

from experiments import running
from experiments.tables import planned
from experiments.tables.filling import fill
from mnemonics_jax import data


@pytest.fixture
def measured(tmp_path, monkeypatch):
  """A plan whose rows have made-up runs; the second is 10 points better."""
  digits, started = data.load("digits"), []

  def run(settings, _, workdir, **__):
    started.append(workdir)
    better = 0.1 if settings.rehearsal == "4" else 0.0
    (seed,) = settings.seeds
    report_fixture.write(workdir, seeds=(seed,), offset=better)

  monkeypatch.setattr(running, "run", run)
  asked = request(tmp_path)
  fill(asked, digits)
  return asked, digits, started


def test_what_is_measured_stands_beside_the_plan(measured):
  asked, _, started = measured
  assert len(started) == 4
  text = asked.plan.path.with_suffix(".md").read_text()
  assert text.startswith("# How often\n\nQuestion: Does it help?")
  assert "before any run: Four times if" in text
  assert "--preset=smoke --exemplars=herding, seeds 0, 1." in text
  assert "same method and schedule of phase 0 share its models, which" in text
  # Seeds 0 and 1 have 80 and 78 (tests/support/report_fixture.py).
  assert "| once | 2 | **79.00 ±" in text
  (once,) = [line for line in text.splitlines() if "| once | 2 | **" in line]
  # Four images of 8 × 8 pixels of a class.
  assert once.split(" | ")[-3:-1] == ["4", "768"]
  assert "| four times | 2 | **89.00 ±" in text
  assert "| four times | 2 | +10.00 ± 0.00 | **+10.00 ± 0.00** |" in text
  assert "## N = 2, reported read-out after each phase, in percent" in text
  assert "| row | phase 0 | phase 1 | phase 2 |" in text
  # 90 and 88: half of their difference times Student's 12.71 for two seeds.
  assert "| once | 89.00 ± 12.71 | 79.00 ± 12.71 | 69.00 ± 12.71 |" in text
  assert "paper" not in text.partition("Where from")[0].lower()
  assert asked.plan.path.with_name("often_n2.png").exists()


def test_many_phases_are_left_to_the_picture(measured, monkeypatch):
  asked, digits, _ = measured
  monkeypatch.setattr(planned, "_MOST_PHASES", 1)
  fill(asked, digits)
  text = asked.plan.path.with_suffix(".md").read_text()
  assert "| once | 2 | **79.00 ±" in text and "| phase 0" not in text


def test_phases_are_counted_where_there_is_no_base_phase(tmp_path, monkeypatch):
  """And where only some rows have one."""

  def run(settings, _, workdir, **__):
    groups = (2, 2) if settings.base_classes == 0 else (2, 1, 1)
    report_fixture.write(workdir, groups=groups, seeds=settings.seeds)

  monkeypatch.setattr(running, "run", run)
  rows = {
    "all": {"settings": {"base_classes": 0}},
    "half": {"settings": {"base_classes": 6}},
  }
  plan = write(tmp_path / "base.yaml", rows=rows, seeds=[0])

  def table(**given):
    flags = {"plan": str(plan), "root": str(tmp_path / "runs"), **given}
    fill(tables.asked(**flags), data.load("digits"))
    text = plan.with_suffix(".md").read_text().partition("after each phase")[2]
    return [line for line in text.splitlines() if line.startswith("| ")]

  # 90 % after phase 0, and ten points less after each other.
  assert table(rows="all")[:2] == [
    "| row | phase 0 | phase 1 |", "| all | 90.00 | 80.00 |",
  ]  # fmt: skip
  assert table()[:3] == [
    "| row | phase 0 | phase 1 | phase 2 |",
    "| all | 90.00 | 80.00 | – |",
    "| half | 90.00 | 80.00 | 70.00 |",
  ]


def test_written_cells_outlive_their_runs(measured, tmp_path):
  """The plan goes on elsewhere with its JSON alone."""
  asked, digits, started = measured
  before = asked.plan.path.with_suffix(".json").read_text()
  (tmp_path / "runs").rename(tmp_path / "gone")
  fill(asked, digits)
  assert len(started) == 4
  after = asked.plan.path.with_suffix(".json").read_text()
  assert json.loads(before)["cells"] == json.loads(after)["cells"]
  # Another number of epochs makes other numbers.
  changed = {"exemplars": "herding", "epochs": 3}
  fill(request(tmp_path, settings=changed), digits)
  assert len(started) == 8
  # What was measured before waits until it is asked for again, here or elsewhere.
  rows = {"same": PLAN["rows"]["once"]}
  other = write(tmp_path / "other.yaml", rows=rows)
  fill(tables.asked(plan=str(other), root=str(tmp_path / "runs")), digits)
  fill(asked, digits)
  assert len(started) == 8


def test_what_a_plan_beside_it_has_measured_is_taken_over(measured, tmp_path):
  """Equal settings are run once, whatever the rows are called."""
  asked, digits, started = measured
  (tmp_path / "runs").rename(tmp_path / "gone")
  rows = {
    "same": PLAN["rows"]["once"],
    "two": {"settings": {"rehearsal": 2}, "minus": ["same"]},
  }
  other = write(tmp_path / "other.yaml", rows=rows, seeds=[0, 1, 2])
  fill(tables.asked(plan=str(other), root=str(tmp_path / "runs")), digits)
  # Row two with three seeds, and row same with the one that is new.
  assert len(started) == 4 + 4
  cells = json.loads(other.with_suffix(".json").read_text())["cells"]
  before = json.loads(asked.plan.path.with_suffix(".json").read_text())["cells"]
  for seed in (0, 1):
    taken = cells[f"same/n2/seed_{seed}"]
    assert taken == before[f"once/n2/seed_{seed}"] | {
      "row": "same",
      "study": "often",
    }
  assert "study" not in cells["same/n2/seed_2"]
  text = other.with_suffix(".md").read_text()
  assert "- from often: `same/n2/seed_0, same/n2/seed_1`" in text
  # Of those that have measured it, the plan with more of its cells is asked, and none
  # that has taken them over.
  cell = before["once/n2/seed_0"] | {"row": "same", "code": "other"}
  copies = {
    key: cell | {"study": "gone"}
    for key, cell in before.items()
    if key.startswith("once")
  }
  for name, measured_there in [
    ("a", {"x": cell}), ("z", {"x": cell}), ("zz", copies)
  ]:  # fmt: skip
    few = write(tmp_path / f"{name}.yaml", rows={"same": rows["same"]})
    record = {"commands": ["x"], "environment": {}, "cells": measured_there}
    few.with_suffix(".json").write_text(json.dumps(record))
  other.with_suffix(".json").unlink()
  shutil.rmtree(tmp_path / "runs")
  sheet = fill(
    tables.asked(plan=str(other), root=str(tmp_path / "runs")), digits
  )
  assert {cell.get("study") for cell in sheet.cells} == {"often", None}
  assert len(started) == 8 + 4
  # A damaged record of another plan costs no more than what it knew.
  asked.plan.path.with_suffix(".json").write_text("{")
  fill(tables.asked(plan=str(other), root=str(tmp_path / "runs")), digits)
  assert len(started) == 12
