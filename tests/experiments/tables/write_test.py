"""A table on disk: several commands fill it, and it says how."""

import csv
import functools
import json
import os
from pathlib import Path
import shutil
import subprocess
import sys

import pytest
from support import report_fixture, tables

from experiments.tables import cells as table_cells
from experiments.tables import write
from mnemonics_jax import runs
from mnemonics_jax.errors import UserError

write_table = functools.partial(write.write_table, data=tables.DATA)


def cells_of(plan, made=False):
  """Cells of made-up runs, which may be there already."""
  if not made:
    tables.make_up(plan)
  found = {}
  for row, phases, seed in plan.cells():
    workdir = plan.workdir(row, phases, seed, tables.DATA)
    cell = table_cells.pending(row, phases, seed, workdir.name)
    cell = table_cells.finished(cell, runs.load_run(workdir))
    found[table_cells.key(cell)] = cell
  return found


def test_finished_cells_become_a_table(tmp_path):
  plan = tables.table(
    tmp_path, rows="mnemonics,herding", seeds="0,1,2", phases="2"
  )
  sheet = write_table(plan, cells_of(plan), draw=True)
  record, text, page = tables.written(plan)

  # 80, 78, 76: t(2) = 4.303 times 2 / sqrt(3). 81, 80, 79: half of it.
  assert (
    "| herding, not adjusted | 78.00 ± 4.97 | – | head | 3 | reduced |" in text
  )
  assert "| mnemonics, not adjusted | 80.00 ± 2.48 | – | head | 3 |" in text
  # Forgetting: 12, 10, 8 in both rows.
  assert text.count("| 10.00 ± 4.97 | – |") == 2
  assert "| minus herding, not adjusted | seeds | head, before |" in text
  # Pairs differ by 1, 2, 3 in every read-out, and not in what was forgotten.
  one = "+2.00 ± 2.48"
  assert (
    "| mnemonics, not adjusted | 3 |"
    f" {one} | **{one}** | {one} | {one} | 0.00 ± 0.00 |" in text
  )
  assert "The paper has no numbers for digits" in text
  assert "not with published numbers" in text
  for part in ("78.00 ± 4.97", one, "<table>", "data:image/png"):
    assert part in page
  assert set(record["cells"]) == {
    f"{row}/n2/seed_{seed}" for row in tables.OFFSETS for seed in range(3)
  }
  assert "- code of all cells: `commit 0123abc`" in text
  assert [row.name for row in sheet.shown] == ["herding", "mnemonics"]

  with open(tmp_path / "tables" / f"{plan.name}_n2.csv") as file:
    lines = list(csv.DictReader(file))
  (base,) = [
    line for line in lines
    if (line["row"], line["panel"], line["classes_seen"])
    == ("herding", "reported", "3")
  ]  # fmt: skip
  # 90, 88, 86 after phase 0.
  assert float(base["mean_percent"]) == pytest.approx(88)
  assert float(base["ci95_percent"]) == pytest.approx(4.968, abs=1e-3)


def test_commands_with_other_seeds_and_rows_fill_one_table(
  tmp_path, monkeypatch
):
  for flags, places in [
    (dict(rows="herding", seeds="0,1"), ["--root=my runs"]),
    (dict(rows="herding", seeds="2"), ["--root", "x", "-data_dir=/mine"]),
    (dict(rows="mnemonics", seeds="1,2"), []),
  ]:
    plan = tables.table(tmp_path, phases="2", **flags)
    asked = f"--seeds={flags['seeds']}"
    monkeypatch.setattr(sys, "argv", ["tables", *places, asked])
    write_table(plan, cells_of(plan), draw=False)
  record, text, _ = tables.written(plan)
  assert "| herding, not adjusted | 78.00 ± 4.97 |" in text
  assert "| minus herding, not adjusted | seeds | head, before |" in text
  assert "| mnemonics, not adjusted | 2 |" in text
  assert len(record["cells"]) == 5
  # Without places of this machine.
  asked = [command.partition(" --")[2] for command in record["commands"]]
  assert asked == ["seeds=0,1", "seeds=2", "seeds=1,2"]
  assert "mine" not in str(record["commands"])

  # A cell that would be run differently today is left out.
  path = plan.file(".json")
  record["cells"]["herding/n2/seed_0"]["workdir"] = "another"
  path.write_text(json.dumps(record))
  write_table(plan, cells_of(plan), draw=False)
  assert len(tables.written(plan)[0]["cells"]) == 4


def test_a_pending_cell_does_not_replace_what_another_command_has_ended(
  tmp_path,
):
  plan = tables.table(tmp_path, rows="herding", seeds="0", phases="2")
  done = cells_of(plan)
  write_table(plan, done, draw=False)
  ((key, cell),) = done.items()
  write_table(plan, {key: cell | {"status": "pending"}}, draw=False)
  assert tables.written(plan)[0]["cells"][key]["status"] == "finished"
  failed = table_cells.failed(cell, "loss is NaN")
  write_table(plan, {key: failed}, draw=False)
  assert tables.written(plan)[0]["cells"][key]["status"] == "failed"


@pytest.mark.parametrize(
  "text",
  [
    *("{", "{}", "[]", '{"cells": {"a": 3}}'),
    '{"commands": ["x"], "environment": {}, "cells": {}, "outdated": {"a": 3}}',
  ],
)
def test_a_damaged_table_says_what_to_do(tmp_path, text):
  plan = tables.table(tmp_path, rows="herding", seeds="0", phases="2")
  path = plan.file(".json")
  path.parent.mkdir()
  path.write_text(text)
  with pytest.raises(UserError, match="remove it, and it is written again"):
    write_table(plan, {}, draw=False)
  assert path.read_text() == text


def test_a_run_that_is_gone_costs_its_picture(tmp_path):
  plan = tables.table(tmp_path, rows="mnemonics", seeds="0,1", phases="2")
  for row, phases, seed in plan.cells():
    workdir = plan.workdir(row, phases, seed, tables.DATA)
    report_fixture.write(workdir, seeds=(seed,), learned=True)
  cells = cells_of(plan, made=True)
  shutil.rmtree(workdir)
  write_table(plan, cells, draw=True)
  record, text, _ = tables.written(plan)
  assert len(record["cells"]) == 2 and "## How far exemplars move" in text


def test_moving_exemplars_of_every_n_are_side_by_side(tmp_path):
  plan = tables.table(
    tmp_path, rows="mnemonics,herding", seeds="0,1", phases="2,4"
  )
  for row, phases, seed in plan.cells():
    learned = row.name == "mnemonics"
    report_fixture.write(
      plan.workdir(row, phases, seed, tables.DATA),
      groups=(3, *[1] * phases), seeds=(seed,), learned=learned,
    )  # fmt: skip
  write_table(plan, cells_of(plan, made=True), draw=True)
  folder, name = tmp_path / "tables", f"{plan.name}_distances_mnemonics"
  with open(folder / f"{name}.csv") as file:
    lines = list(csv.DictReader(file))
  assert {line["run"] for line in lines} == {"N = 2", "N = 4"}
  (line,) = [
    line for line in lines
    if (line["run"], line["phase"], line["meta_epoch"]) == ("N = 4", "3", "2")
  ]  # fmt: skip
  # Of seeds 0 and 1: 3 + 0.1 seed + 0.02 epoch.
  assert float(line["cosine"]) == pytest.approx(3.09)
  assert not [*folder.glob("*distances_herding*")]
  _, text, page = tables.written(plan)
  assert "## How far exemplars move" in text
  shows = (
    "At the end of the last phase, the cosine distance is 2.1 (N = 2) and 4.1"
    " (N = 4)."
  )
  assert f"![{shows}]({name}.png)" in text
  assert f'alt="{shows}"' in page
  assert f'<a href="{name}.csv">' in page


def test_the_code_of_every_cell_is_named(tmp_path):
  plan = tables.table(tmp_path, rows="herding", seeds="0,1,2", phases="2")
  cells = cells_of(plan)
  cells["herding/n2/seed_1"]["code"] = "commit 4567def with uncommitted changes"
  write_table(plan, cells, draw=False)
  _, text, page = tables.written(plan)
  for part in (
    "commit 0123abc: herding/n2/seed_0, herding/n2/seed_2",
    "commit 4567def with uncommitted changes: herding/n2/seed_1",
  ):
    assert f": `{part}`" in text and part in page


def test_cells_of_other_data_are_left_out_but_not_lost(tmp_path):
  plan = tables.table(tmp_path, rows="herding", seeds="0,1", phases="2")
  done = cells_of(plan)
  failed = table_cells.failed(done.pop("herding/n2/seed_1"), "loss is NaN")
  write_table(plan, {**done, table_cells.key(failed): failed}, draw=False)
  before, shown, _ = tables.written(plan)
  for _ in range(2):  # A second time it is among those that were.
    sheet = write.write_table(plan, {}, data=tables.DATA + 1, draw=False)
    assert sheet.cells == []
    record, text, _ = tables.written(plan)
    assert "80.00" in shown and "80.00" not in text
    assert list(record["outdated"].values()) == [
      before["cells"]["herding/n2/seed_0"]
    ]
  # Those of the first data count again, and others stay beside them.
  other = dict(before["cells"]["herding/n2/seed_0"], workdir="another")
  record["outdated"]["other"] = other
  plan.file(".json").write_text(json.dumps(record))
  assert write.read_cells(plan, tables.DATA).keys() == {"herding/n2/seed_0"}
  write_table(plan, {}, draw=False)
  record, text, _ = tables.written(plan)
  assert "80.00" in text and list(record["outdated"].values()) == [other]


SLOW_WRITER = """
import sys, time
from pathlib import Path
from support import report_fixture, tables
from experiments.tables import cells, write

root, seed = Path(sys.argv[1]), int(sys.argv[2])
plan = tables.table(root, rows="herding", seeds=str(seed), phases="2")
read = write._read

def slow_read(path):
  (root / f"reading_{seed}").touch()
  found = read(path)
  deadline = time.monotonic() + 3
  while len([*root.glob("reading_*")]) < 2 and time.monotonic() < deadline:
    time.sleep(0.02)
  time.sleep(0.3)
  return found

write._read = slow_read
((row, phases, _),) = plan.cells()
name = plan.workdir(row, phases, seed, tables.DATA).name
cell = cells.failed(cells.pending(row, phases, seed, name), "made up")
write.write_table(plan, {cells.key(cell): cell}, data=17, draw=False)
"""


def test_commands_at_the_same_time_lose_no_cell(tmp_path):
  root = Path(__file__).parents[3]
  path = os.pathsep.join([str(root), str(root / "tests")])
  writers = [
    subprocess.Popen(
      [sys.executable, "-c", SLOW_WRITER, str(tmp_path), str(seed)],
      env={**os.environ, "PYTHONPATH": path},
    )
    for seed in (0, 1)
  ]
  assert [writer.wait(timeout=120) for writer in writers] == [0, 0]
  plan = tables.table(tmp_path, rows="herding", seeds="0", phases="2")
  record, _, _ = tables.written(plan)
  assert set(record["cells"]) == {"herding/n2/seed_0", "herding/n2/seed_1"}
