"""What a table shows: numbers worked out by hand, the paper's, and those in results/."""

import json
from pathlib import Path

import pytest
from support import report_fixture, tables

from experiments.paper import departures
from experiments.tables import cells as table_cells
from experiments.tables import figures, views, write
from experiments.tables.cells import Sheet
from mnemonics_jax import runs
from mnemonics_jax.report import render
from mnemonics_jax.report.tables import REPORTED

ROOT = Path(__file__).parents[3]


def _text(sheet, record=None, render=render.markdown):
  page = views.page(sheet, record or {"commands": []})
  return render(page, sheet.plan.directory)


def test_a_finished_run_becomes_a_cell(tmp_path):
  row = tables.table(tmp_path).row("random")
  cell = table_cells.pending(row, 2, 1, "a_directory")
  done = runs.load_run(report_fixture.write(tmp_path / "run", seeds=(1,)))
  found = table_cells.finished(cell, done)
  assert table_cells.key(found) == "random/n2/seed_1"
  assert (found["status"], found["workdir"]) == ("finished", "a_directory")
  assert found["classes_seen"] == [3, 4, 5]
  assert table_cells.accuracies(found) == pytest.approx([0.88, 0.78, 0.68])
  # The fine-tune has added 4 points after phases 1 and 2.
  trained = [0.83, 0.69, 0.59]
  assert found["accuracy"]["trained"]["nme"] == pytest.approx(trained)
  assert table_cells.average(found) == pytest.approx(0.78)
  assert table_cells.average(found, "nme") == pytest.approx(0.73)
  before = table_cells.average(found, "head", "trained")
  assert before == pytest.approx(0.78 - 0.08 / 3)
  assert table_cells.forgetting(found) == pytest.approx(0.10)
  assert found["seconds"] == 3 * 2.5
  failed = table_cells.failed(cell, "loss is NaN")
  assert (failed["status"], failed["reason"]) == ("failed", "loss is NaN")
  assert cell["status"] == "pending"


def _made_up(plan, name, seed, status="finished", **more):
  cell = table_cells.pending(plan.row(name), 2, seed, "")
  return cell | {"status": status} | more


def test_cells_are_sorted_by_seed_and_paired_with_their_reference(tmp_path):
  plan = tables.table(tmp_path)
  cells = [_made_up(plan, "herding", seed) for seed in (2, 0, 1)]
  cells += [_made_up(plan, "mnemonics", seed) for seed in (3, 1)]
  sheet = Sheet(plan, [*cells, _made_up(plan, "mnemonics", 0, "failed")])
  seeds = lambda *place: [cell["seed"] for cell in sheet.of(*place)]
  assert seeds("herding", 2) == [0, 1, 2]
  assert seeds("mnemonics", 2, "failed") == [0]
  assert seeds("herding", 5) == []
  assert sheet.phases == [2]
  assert [row.name for row in sheet.shown] == ["herding", "mnemonics"]
  pairs = sheet.paired(plan.row("mnemonics"), "herding", 2)
  assert [(a["row"], b["row"], a["seed"], b["seed"]) for a, b in pairs] == [
    ("mnemonics", "herding", 1, 1)
  ]
  assert sheet.paired(plan.row("mnemonics"), "random", 2) == []


def test_estimates_are_students():
  mean, half = table_cells.estimate([0.80, 0.78, 0.76])
  # t(2) = 4.303 times 2 / sqrt(3).
  assert (mean, half) == pytest.approx((0.78, 0.04968), abs=1e-5)
  assert table_cells.estimate([0.5]) == (0.5, None)


@pytest.fixture
def sheet(tmp_path):
  """Two rows with N of 5 and 10, of which the last cell has failed."""
  plan = tables.table(tmp_path, dataset="cifar100", phases="5,10")
  cells = []
  for row in map(plan.row, tables.OFFSETS):
    for phases in (5, 10):
      path = tmp_path / f"{row.name}{phases}"
      report_fixture.write(path, seeds=(0,))
      cell = table_cells.pending(row, phases, 0, path.name)
      settings = plan.settings(row, phases, 0)
      cell["departures"] = departures(settings, row.cell)
      cells.append(table_cells.finished(cell, runs.load_run(path)))
  cells[-1] = table_cells.failed(cells[-1], "loss is NaN")
  return Sheet(plan, cells)


def test_papers_numbers_stand_beside_and_are_labelled(sheet):
  text = _text(sheet)
  header = "| row | N = 5, measured | N = 5, paper | N = 10, measured |"
  assert header in text
  assert "| herding, not adjusted | 80.00 | 62.98 | 80.00 | 61.23 |" in text
  assert "| mnemonics, not adjusted | 80.00 | 63.25 | failed | 61.86 |" in text
  assert "Liu et al. (CVPR 2020) print in their Table 2 for CIFAR-100" in text


def test_it_says_what_is_reduced_and_what_is_missing(sheet):
  text = _text(sheet)
  assert "net resnet8 (paper: resnet32), epochs 10 (paper: 160)" in text
  assert "in some rows" in text and "recipe tuned (paper: paper)" in text
  assert "3 of 4 cells have finished, 1 failed." in text
  assert "loss is NaN" in text


def test_the_page_has_the_numbers_of_the_text(sheet):
  page = _text(sheet, {"commands": ["python -m <b>"]}, render.html)
  for part in ("62.98", "61.86", "failed", "net resnet8 (paper: resnet32)"):
    assert part in page
  assert "<b>" not in page


@pytest.mark.parametrize(
  "table, name, number",
  [("1", "lucir_mnemonics", "19.80"), ("2", "mnemonics_adjust", "15.22")],
)
def test_a_number_that_the_paper_prints_otherwise_elsewhere_is_marked(
  tmp_path, table, name, number
):
  plan = tables.table(
    tmp_path, table=table, dataset="cifar100", phases="10,25", rows=name
  )
  row = plan.row(name)
  cells = [table_cells.pending(row, n, 0, "") for n in (10, 25)]
  text = _text(Sheet(plan, cells))
  assert f"| 13.38 | not run | {number} † |" in text
  note = (
    f"† The paper contradicts itself: for forgetting of this run ({row.label},"
    " N = 25) it prints 19.80 in Table 1, 15.22 in Table 2, 19.80 in Table S2."
  )
  assert note in text and note in _text(Sheet(plan, cells), None, render.html)
  assert "†" not in _text(Sheet(plan, cells[:1]))


def _compared(
  plan, name, seed, head, nme=0.5, before=0.4, forgotten=0.1, base=0.7
):
  return _made_up(
    plan,
    name,
    seed,
    readout="head",
    average={
      "trained": {"head": before, "nme": nme},
      "final": {"head": head, "nme": nme},
    },
    accuracy={"trained": {"head": [base, 0.1]}},
    forgetting={"head": forgotten, "nme": 0.0},
  )


def test_pairs_are_subtracted_seed_by_seed(tmp_path):
  plan = tables.table(tmp_path)
  cell = lambda *args, **more: _compared(plan, *args, **more)
  cells = [
    cell("herding", 0, 0.60), cell("herding", 1, 0.70), cell("herding", 2, 0.1),
    # Seed 2 has no partner; 1 and 3 points more; 4 and 2 less forgotten.
    cell("mnemonics", 0, 0.61, nme=0.52, before=0.39, forgotten=0.06),
    cell("mnemonics", 1, 0.73, nme=0.52, before=0.39, forgotten=0.08),
  ]  # fmt: skip
  ((title, found),) = views.difference_tables(Sheet(plan, cells))
  assert title == "N = 2" and found.header[0] == "minus herding, not adjusted"
  # The half-width of two numbers one point from their mean: 12.706 points.
  assert found.rows == [
    [
      *("mnemonics, not adjusted", "2", "−1.00 ± 0.00"),
      *("+2.00 ± 12.71" + REPORTED, "+2.00 ± 0.00", "+2.00 ± 0.00"),
      "+3.00 ± 12.71",
    ]
  ]
  one = [cell("herding", 0, 0.6), cell("mnemonics", 0, 0.5)]
  ((_, found),) = views.difference_tables(Sheet(plan, one))
  assert found.rows[0][3] == "−10.00" + REPORTED  # And no interval.
  assert views.difference_tables(Sheet(plan, one[:1])) == []


def test_differences_are_taken_to_every_reference(tmp_path):
  plan = tables.table(tmp_path, table="1")
  heads = {"lwf": 0.6, "lwf_equal": 0.61, "lwf_mnemonics": 0.64}
  cells = [_compared(plan, name, 0, head) for name, head in heads.items()]
  ((_, found),) = views.difference_tables(Sheet(plan, cells))
  assert {row[0]: row[3] for row in found.rows} == {
    "LwF, equal components − LwF": "+1.00" + REPORTED,
    "LwF with mnemonics − LwF": "+4.00" + REPORTED,
    "LwF with mnemonics − LwF, equal components": "+3.00" + REPORTED,
  }


def test_pairs_of_other_models_of_phase_0_are_told(tmp_path):
  plan = tables.table(tmp_path)
  cells = [_compared(plan, "herding", seed, 0.6) for seed in (0, 1, 2)]
  cells += [_compared(plan, "mnemonics", seed, 0.7) for seed in (0, 1)]
  assert views.other_beginnings(Sheet(plan, cells)) == ""
  cells.append(_compared(plan, "mnemonics", 2, 0.7, base=0.701))
  assert views.other_beginnings(Sheet(plan, cells)) == (
    "Not from one model of phase 0: mnemonics, not adjusted − herding, not"
    " adjusted (seed 2)."
  )


def _study(tmp_path, groups=None, **changes):
  """The cells of a study with made-up runs, and what is written of them."""
  plan = tables.study(tmp_path, changes=changes)
  cells = []
  for row, phases, seed in plan.cells():
    path = plan.workdir(row, phases, seed, tables.DATA)
    shape = {"groups": groups[row.name]} if groups else {}
    better = 0.1 if row.name == "four" else 0.0
    report_fixture.write(path, seeds=(seed,), offset=better, **shape)
    cell = table_cells.pending(row, phases, seed, path.name)
    cells.append(table_cells.finished(cell, runs.load_run(path)))
  return Sheet(plan, cells)


def test_a_study_shows_its_question_and_all_that_was_measured(tmp_path):
  text = _text(_study(tmp_path))
  assert text.startswith("# How often\n\nQuestion: Does it help?")
  assert "before any run: Four times if" in text
  assert "--preset=smoke --exemplars=herding, seeds 0, 1." in text
  assert "same method and schedule of phase 0 share its models, which" in text
  # Seeds 0 and 1 have 80 and 78 (tests/support/report_fixture.py).
  (once,) = [line for line in text.splitlines() if "| once | 2 | **" in line]
  assert once.startswith("| once | 2 | **79.00 ±")
  # Four images of 8 × 8 pixels of a class.
  assert once.split(" | ")[-3:-1] == ["4", "768"]
  assert "| four times | 2 | **89.00 ±" in text
  assert "| four times | 2 | +10.00 ± 0.00 | **+10.00 ± 0.00** |" in text
  assert "## N = 2, reported read-out after each phase, in percent" in text
  assert "| row | phase 0 | phase 1 | phase 2 |" in text
  # 90 and 88: half of their difference times Student's 12.71 for two seeds.
  assert "| once | 89.00 ± 12.71 | 79.00 ± 12.71 | 69.00 ± 12.71 |" in text
  assert "paper" not in text.partition("Where from")[0].lower()


def test_a_study_says_what_is_not_run(tmp_path):
  done = _study(tmp_path)
  pending = [
    table_cells.pending(done.plan.row("once"), 2, 0, ""),
    table_cells.failed(
      table_cells.pending(done.plan.row("four"), 2, 0, ""), "no memory"
    ),
  ]
  dashes = " | –" * 7
  text = _text(Sheet(done.plan, pending))
  assert f"| once | 0 | not run{dashes} |" in text
  assert f"| four times | 0 | failed{dashes} |" in text


def test_many_phases_are_left_to_the_picture(tmp_path, monkeypatch):
  monkeypatch.setattr(views, "_MOST_PHASES", 1)
  text = _text(_study(tmp_path))
  assert "| once | 2 | **79.00 ±" in text and "| phase 0" not in text


def test_phases_are_counted_where_there_is_no_base_phase(tmp_path):
  """And where only some rows have one."""
  groups = {"all": (2, 2), "half": (2, 1, 1)}
  rows = {name: {"settings": {}} for name in groups}
  sheet = _study(tmp_path, groups, rows=rows, seeds=[0])
  # 90 % after phase 0, and ten points less after each other.
  (_, found) = views.quantity_tables(sheet)[1]
  assert found.header == ["row", "phase 0", "phase 1", "phase 2"]
  assert found.rows == [
    ["all", "90.00", "80.00", "–"], ["half", "90.00", "80.00", "70.00"],
  ]  # fmt: skip
  alone = Sheet(sheet.plan, [c for c in sheet.cells if c["row"] == "all"])
  (_, found) = views.quantity_tables(alone)[1]
  assert found.header == ["row", "phase 0", "phase 1"]


def _in_results(path):
  """What was asked for, by the file of a study or the command that is noted."""
  study = path.with_suffix(".yaml")
  if study.exists():
    return tables.asked(plan=str(study))
  words = json.loads(path.read_text())["commands"][0].split()[3:]
  given = (word[2:].partition("=") for word in words)
  flags = {name: value for name, equals, value in given if equals}
  return tables.asked(**flags)


_RESULTS = [
  path
  for path in sorted((ROOT / "results").rglob("*.json"))
  if "base_models" not in path.parts
]
# The checksum of CIFAR-100. Its cells are valid: a change of the names of directories
# would have all of them measured again.
_CIFAR100 = 972936230


@pytest.mark.parametrize("path", _RESULTS, ids=lambda path: path.stem)
def test_results_have_the_tables_and_the_cells_that_they_had(monkeypatch, path):
  monkeypatch.chdir(ROOT)  # Studies name models that come with it.
  plan = _in_results(path)
  noted = json.loads(path.read_text())
  cells = []
  for key, cell in noted["cells"].items():
    assert table_cells.key(cell) == key
    row = plan.row(cell["row"])
    settings = plan.settings(row, cell["phases"], cell["seed"])
    told = departures(settings, row.cell)
    cells.append({"seconds": 0.0, "departures": told, **cell})
    if not plan.table:
      # A preset that changes must not change what cells were; their plan says it.
      of_data = [d for d in cell["departures"] if d.startswith("a part of the")]
      assert told + of_data == cell["departures"], key
    if not plan.table and plan.dataset == "cifar100":
      assert write._is_valid(plan, cell, _CIFAR100), key
  lines = lambda text: [one for one in text.splitlines() if one[:1] == "|"]
  made = lines(_text(Sheet(plan, cells), noted))
  assert made and made == lines(path.with_suffix(".md").read_text())


def test_pictures_are_named_after_n_and_row(tmp_path):
  sheet = _study(tmp_path)
  for name in ("_n2", "_distances_four", "_n5"):
    sheet.plan.file(f"{name}.png").touch()
  curves, moves = figures.written(sheet)
  assert [path.name for path in (*curves, *moves)] == [
    "often_n2.png", "often_distances_four.png",
  ]  # fmt: skip
