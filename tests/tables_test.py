"""The paper's tables: rows, cells, what is written of them, and running them."""

import csv
import json
import sys

from absl.testing import flagsaver
import pytest
import report_fixture

from experiments import (
  base_models,
  command,
  table_rows,
  table_views,
  tables,
)
from experiments import run as run_lib
from experiments import workdir as workdir_lib
from experiments.paper import reductions
from experiments.settings import DiskError, UserError, build
from experiments.stopping import Stopped
from mnemonics_jax import data, phase, report


def _request(root, **flags):
  with flagsaver.as_parsed(
    **{"table": "2", "dataset": "digits", "root": str(root), **flags}
  ):
    return tables.request_from_flags()


def _never(*_):
  raise AssertionError("a finished cell was run again")


@pytest.fixture(scope="module")
def digits():
  return data.load("digits")


# --- rows


def test_rows_of_table_1_are_baselines_and_mnemonics(tmp_path):
  request = _request(tmp_path, table="1")
  found = {row.name: request.settings(row, 5, 0) for row in request.rows}
  methods = ("lwf", "icarl", "bic", "lucir")
  assert list(found) == [m + s for m in methods for s in ("", "_mnemonics")]
  for method in methods:
    for name, expected in [
      (method, ("herding", False, "none", "none")),
      (f"{method}_mnemonics", ("mnemonics", True, "in_out", "head")),
    ]:
      s = found[name]
      assert s.method == method and s.memory == "per_class:5"
      assert (s.exemplars, s.adjust, s.transfer, s.finetune) == expected


def test_all_rows_of_table_2_transfer_and_finetune(tmp_path):
  for preset, finetune, recipe in [
    ("short", "head", "tuned"), ("paper", "all", "paper")
  ]:  # fmt: skip
    request = _request(tmp_path, preset=preset, dataset="cifar100")
    assert request.phases == (5, 10, 25)
    cells = [request.settings(row, 10, 3) for row in request.rows]
    assert {(s.exemplars, s.adjust) for s in cells} == {
      (kind, adjust)
      for kind in ("random", "herding", "mnemonics")
      for adjust in (False, True)
    }
    for s in cells:
      assert (s.method, s.transfer, s.finetune) == ("lucir", "in_out", finetune)
      assert (s.phases, s.seeds, s.memory) == (10, (3,), "per_class:20")
    assert [s.recipe for s in cells if s.exemplars == "mnemonics"] == [
      recipe
    ] * 2


def test_budget_and_distillation_tables(tmp_path):
  budget = _request(tmp_path, table="s1")
  assert budget.settings(budget.rows[0], 5, 0).memory == "total:20"
  budget = _request(tmp_path, table="s1", dataset="cifar100")
  assert budget.settings(budget.rows[0], 5, 0).memory == "total:2000"
  request = _request(tmp_path, table="s2")
  found = {row.name: request.settings(row, 5, 0) for row in request.rows}
  assert not found["nodistill"].distill and found["distill"].distill


def test_flags_reach_only_the_rows_they_matter_to(tmp_path):
  plain = _request(tmp_path, table="1")
  moved = _request(
    tmp_path, table="1", max_change="4", finetune="all", finetune_epochs="3"
  )
  by_name = {row.name: row for row in plain.rows}
  same = lambda name: (
    plain.settings(by_name[name], 5, 0) == moved.settings(by_name[name], 5, 0)
  )
  assert same("lucir") and not same("lucir_mnemonics")
  assert moved.name != plain.name == "table_1_digits_short"


def test_papers_numbers():
  approx = pytest.approx

  def number(table, quantity, name, dataset, phases):
    rows = {row.name: row for row in table_rows.rows(table, "short")}
    return table_rows.paper_number(table, quantity, rows[name], dataset, phases)

  assert number("1", "avg_acc", "lucir_mnemonics", "cifar100", 5) == approx(
    0.6334
  )
  assert number("1", "forgetting", "icarl", "cifar100", 25) == approx(0.3648)
  assert number("2", "avg_acc", "herding", "cifar100", 10) == approx(0.6123)
  assert number("s1", "avg_acc", "lwf", "cifar100", 25) == approx(0.5044)
  assert number("s2", "forgetting", "nodistill", "cifar100", 5) == approx(
    0.3870
  )
  assert number("2", "avg_acc", "herding", "digits", 5) is None
  assert number("2", "avg_acc", "herding", "cifar100", 7) is None
  for table in table_rows.TABLES:
    for row in table_rows.rows(table, "short"):
      for quantity in ("avg_acc", "forgetting"):
        for phases in (5, 10, 25):
          assert number(table, quantity, row.name, "cifar100", phases)


# --- filling and rendering, with made-up runs

# Average accuracy of a made-up run is 80 % minus 2 points per seed, plus this.
OFFSETS = {"herding": (0.0, 0.0, 0.0), "mnemonics": (0.01, 0.02, 0.03)}


def _make_up(request, seeds=None):
  for row, phases, seed in request.cells():
    if seeds is None or seed in seeds:
      settings = request.settings(row, phases, seed)
      report_fixture.write(
        workdir_lib.default(settings, str(request.root)),
        seeds=(seed,),
        exemplars=settings.exemplars,
        offset=OFFSETS[row.name][seed],
      )


def _written(request):
  folder = request.root / "tables"
  read = lambda suffix: (folder / f"{request.name}{suffix}").read_text("utf-8")
  return json.loads(read(".json")), read(".md"), read(".html")


def test_finished_cells_become_a_table(tmp_path, digits, monkeypatch):
  request = _request(
    tmp_path, rows="mnemonics,herding", seeds="0,1,2", phases="2"
  )
  _make_up(request)
  monkeypatch.setattr(run_lib, "run", _never)
  sheet = tables.fill(request, digits, tensorboard=False)
  record, text, page = _written(request)

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
    f" {one} | **{one}** | {one} | {one} | +0.00 ± 0.00 |" in text
  )
  assert "The paper has no numbers for digits" in text
  assert "not with published numbers" in text
  for part in ("78.00 ± 4.97", one, "<table>", "data:image/png"):
    assert part in page
  assert set(record["cells"]) == {
    f"{row}/n2/seed_{seed}" for row in OFFSETS for seed in range(3)
  }
  assert record["cells"]["herding/n2/seed_1"]["average"] == {
    "final": pytest.approx({"head": 0.78, "nme": 0.73}),
    # Phases 1 and 2 of three were 4 points lower before the fine-tune.
    "trained": pytest.approx({"head": 0.78 - 0.08 / 3, "nme": 0.73 - 0.08 / 3}),
  }
  assert record["commands"] and record["environment"]
  assert [row.name for row in sheet.shown] == ["herding", "mnemonics"]

  with open(tmp_path / "tables" / f"{request.name}_n2.csv") as file:
    lines = list(csv.DictReader(file))
  (base,) = [
    line for line in lines
    if (line["row"], line["panel"], line["classes_seen"])
    == ("herding", "reported", "3")
  ]  # fmt: skip
  # 90, 88, 86 after phase 0.
  assert float(base["mean_percent"]) == pytest.approx(88)
  assert float(base["ci95_percent"]) == pytest.approx(4.968, abs=1e-3)


def test_papers_numbers_stand_beside_and_are_labelled(tmp_path):
  request = _request(tmp_path, dataset="cifar100", phases="5,10")
  from experiments import table_cells

  rows = [row for row in request.rows if row.name in OFFSETS]
  cells = []
  for row in rows:
    for phases in (5, 10):
      path = tmp_path / f"{row.name}{phases}"
      report_fixture.write(path, seeds=(0,))
      cell = table_cells.pending(row, phases, 0, path.name)
      cells.append(table_cells.finished(cell, report.load_run(path)))
  cells[-1] = table_cells.failed(cells[-1], "loss is NaN")
  sheet = table_cells.Sheet(
    "2", "cifar100", "short", request.available, cells,
    {row.name: reductions(request.settings(row, 5, 0))
     for row in request.available},
  )  # fmt: skip
  text = table_views.markdown(sheet, {"commands": ["python"]})
  header = "| row | N = 5, measured | N = 5, paper | N = 10, measured |"
  assert header in text
  assert "| herding, not adjusted | 80.00 | 62.98 | 80.00 | 61.23 |" in text
  assert "| mnemonics, not adjusted | 80.00 | 63.25 | failed | 61.86 |" in text
  assert "Liu et al. (CVPR 2020) print in their Table 2 for CIFAR-100" in text
  assert "net resnet8 (paper: resnet32), epochs 10 (paper: 160)" in text
  assert "in some rows" in text and "recipe tuned (paper: paper)" in text
  assert "3 of 4 cells have finished, 1 failed." in text
  assert "loss is NaN" in text


def test_a_failing_cell_does_not_stop_the_others(
  tmp_path, digits, monkeypatch, capsys
):
  request = _request(
    tmp_path, rows="herding,mnemonics", seeds="0,1", phases="2"
  )
  started = []

  def run(settings, _, workdir, **__):
    (seed,) = settings.seeds
    started.append((settings.exemplars, seed))
    if started[-1] == ("herding", 0):
      raise UserError("Seed 0, phase 1: the loss is not finite.")
    report_fixture.write(workdir, seeds=(seed,), exemplars=settings.exemplars)

  monkeypatch.setattr(run_lib, "run", run)
  tables.fill(request, digits, tensorboard=False)
  assert started == [
    (kind, seed) for seed in (0, 1) for kind in ("herding", "mnemonics")
  ]
  record, text, _ = _written(request)
  assert "78.00 (1 failed)" in text
  assert record["cells"]["herding/n2/seed_0"]["reason"].startswith("Seed 0")
  output = capsys.readouterr().out
  assert "Cell 1 of 4: herding, not adjusted · N = 2 · seed 0" in output
  assert "Cell 4 of 4" in output and "left" in output

  # Again: only the failed one is tried, and now it works.
  started.clear()
  monkeypatch.setattr(
    run_lib, "run", lambda s, d, w, **rest: _fixed(s, w, started)
  )
  tables.fill(request, digits, tensorboard=False)
  assert started == [("herding", 0)]
  assert "failed" not in _written(request)[1]


@pytest.mark.parametrize("error", [DiskError("full"), Stopped(143)])
def test_what_would_stop_every_cell_stops_the_table(
  tmp_path, digits, monkeypatch, error
):
  request = _request(tmp_path, rows="herding", seeds="0,1", phases="2")
  started = []

  def run(settings, *_, **__):
    started.append(settings.seeds)
    raise error

  monkeypatch.setattr(run_lib, "run", run)
  with pytest.raises(type(error)):
    tables.fill(request, digits, tensorboard=False)
  assert started == [(0,)]


def test_a_cell_that_another_command_runs_is_left_to_it(
  tmp_path, digits, monkeypatch
):
  request = _request(tmp_path, rows="herding", seeds="0,1", phases="2")

  def run(settings, _, workdir, **__):
    if settings.seeds == (0,):
      raise workdir_lib.BusyError("in use")
    report_fixture.write(workdir, seeds=settings.seeds)

  monkeypatch.setattr(run_lib, "run", run)
  tables.fill(request, digits, tensorboard=False)
  cells = _written(request)[0]["cells"]
  status = [cells[f"herding/n2/seed_{seed}"]["status"] for seed in (0, 1)]
  assert status == ["pending", "finished"]


def test_a_damaged_table_says_what_to_do(tmp_path, digits, monkeypatch):
  request = _request(tmp_path, rows="herding", seeds="0", phases="2")
  monkeypatch.setattr(run_lib, "run", _never)
  path = tmp_path / "tables" / f"{request.name}.json"
  path.parent.mkdir()
  path.write_text("{")
  with pytest.raises(UserError, match="remove it, and it is written again"):
    tables.fill(request, digits, tensorboard=False)
  assert path.read_text() == "{"


def _fixed(settings, workdir, started):
  started.append((settings.exemplars, *settings.seeds))
  report_fixture.write(workdir, seeds=settings.seeds)


def test_commands_with_other_seeds_and_rows_fill_one_table(
  tmp_path, digits, monkeypatch
):
  monkeypatch.setattr(run_lib, "run", _never)
  for flags in [
    dict(rows="herding", seeds="0,1"),
    dict(rows="herding", seeds="2"),
    dict(rows="mnemonics", seeds="1,2"),
  ]:
    request = _request(tmp_path, phases="2", **flags)
    _make_up(request)
    tables.fill(request, digits, tensorboard=False)
  record, text, _ = _written(request)
  assert "| herding, not adjusted | 78.00 ± 4.97 |" in text
  assert "| minus herding, not adjusted | seeds | head, before |" in text
  assert "| mnemonics, not adjusted | 2 |" in text
  assert len(record["cells"]) == 5

  # A cell that would be run differently today is left out.
  path = tmp_path / "tables" / f"{request.name}.json"
  record["cells"]["herding/n2/seed_0"]["workdir"] = "another"
  path.write_text(json.dumps(record))
  tables.fill(request, digits, tensorboard=False)
  assert len(_written(request)[0]["cells"]) == 4


# --- running


def test_rows_share_the_models_they_have_in_common(tmp_path, digits):
  names = {}
  for table in ("1", "s2"):
    request = _request(tmp_path, table=table, seeds="0", phases="1")
    for row in request.available:
      config, stream = build(request.settings(row, 1, 0), digits)
      state = phase.begin_run(0, config)
      names[row.name] = base_models._name(state, stream[0], config)
  assert names["lucir"] == names["lucir_mnemonics"]
  assert names["lucir"] == names["distill"] == names["nodistill"]
  assert names["bic"] == names["bic_mnemonics"] != names["lucir"]


def test_cells_are_run_once_and_share_the_base_model(
  tmp_path, digits, monkeypatch
):
  request = _request(
    tmp_path, table="1", rows="lucir", seeds="0", phases="1", preset="smoke",
    epochs="1", base_epochs="1", images_per_class="8", memory="per_class:2",
    batch_size="16",
  )  # fmt: skip
  tables.fill(request, digits, tensorboard=False)
  cell = _written(request)[0]["cells"]["lucir/n1/seed_0"]
  assert cell["status"] == "finished" and cell["classes_seen"] == [5, 10]
  results = json.loads(
    (tmp_path / cell["workdir"] / "results.json").read_text()
  )
  head = [p["accuracy"]["head"] for p in results["runs"][0]["phases"]]
  assert cell["average"]["final"]["head"] == pytest.approx(sum(head) / 2)
  assert len(list((tmp_path / "base_models").iterdir())) == 1
  monkeypatch.setattr(run_lib, "run", _never)
  tables.fill(request, digits, tensorboard=False)


# --- mistakes

BAD_FLAGS = [
  ([], "--table=1, 2, s1 or s2"),
  (["--table=3"], "--table=3"),
  (["--table=2", "--rows=best"], "--rows=random,random_adjust,herding"),
  (["--table=2", "--rows="], "--rows="),
  (["--table=2", "--seeds="], "--seeds=0"),
  (["--table=2", "--seeds=a"], "--seeds=0,1,2"),
  (["--table=2", "--seeds=1,1"], "--seeds"),
  (["--table=2", "--phases=6"], "--phases=6"),
  (["--table=2", "--phases=5,5"], "--phases=5,5"),
  (["--table=2", "--phases="], "--phases"),
  (["--table=2", "--phases=x"], "--phases=x"),
  (["--table=2", "--method=lwf"], "--rows"),
  (["--table=2", "--noadjust"], "--rows"),
  (["--table=2", "--workdir=here"], "--root"),
  (["--table=2", "--fresh"], "--root"),
  (["--table=1", "--memory=total:20"], "--table=s1"),
  (["--table=s1", "--memory=per_class:2"], "--table=1"),
  (["--table=s2", "--nodistill"], "--rows"),
  (["--table=2", "--memory=per_class:1000"], "per_class:140"),
  (["--table=2", "--epochs=0"], "--epochs"),
  (["--table=2", "--dataset=mnist"], "--dataset"),
]


@pytest.mark.parametrize("flags, named", BAD_FLAGS)
def test_mistakes_get_one_sentence_and_exit_code_2(
  flags, named, tmp_path, monkeypatch, capsys
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.setattr(sys, "argv", ["tables", *flags])
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as stop:
    command.run(tables.main)
  assert stop.value.code == 2
  message = capsys.readouterr().err.strip()
  assert named in message and "Traceback" not in message
  assert len(message.splitlines()) == 1
  assert not list(tmp_path.iterdir())
