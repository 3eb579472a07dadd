"""A table in words: measured numbers beside the paper's."""

import pytest
from support import report_fixture, tables

from experiments.paper import departures
from experiments.tables import cells as table_cells
from experiments.tables import views
from mnemonics_jax import runs


@pytest.fixture
def sheet(tmp_path):
  """Two rows with N of 5 and 10, of which the last cell has failed."""
  request = tables.request(tmp_path, dataset="cifar100", phases="5,10")
  cells = []
  for row in request.rows:
    for phases in (5, 10) if row.name in tables.OFFSETS else ():
      path = tmp_path / f"{row.name}{phases}"
      report_fixture.write(path, seeds=(0,))
      cell = table_cells.pending(row, phases, 0, path.name)
      cell["departures"] = departures(
        request.settings(row, phases, 0), request.published(row)
      )
      cells.append(table_cells.finished(cell, runs.load_run(path)))
  cells[-1] = table_cells.failed(cells[-1], "loss is NaN")
  return table_cells.Sheet("2", "cifar100", "short", request.available, cells)


def test_papers_numbers_stand_beside_and_are_labelled(sheet):
  text = views.markdown(sheet, {"commands": ["python"]})
  header = "| row | N = 5, measured | N = 5, paper | N = 10, measured |"
  assert header in text
  assert "| herding, not adjusted | 80.00 | 62.98 | 80.00 | 61.23 |" in text
  assert "| mnemonics, not adjusted | 80.00 | 63.25 | failed | 61.86 |" in text
  assert "Liu et al. (CVPR 2020) print in their Table 2 for CIFAR-100" in text


def test_it_says_what_is_reduced_and_what_is_missing(sheet):
  text = views.markdown(sheet, {"commands": ["python"]})
  assert "net resnet8 (paper: resnet32), epochs 10 (paper: 160)" in text
  assert "in some rows" in text and "recipe tuned (paper: paper)" in text
  assert "3 of 4 cells have finished, 1 failed." in text
  assert "loss is NaN" in text


@pytest.mark.parametrize(
  "table, name, number",
  [("1", "lucir_mnemonics", "19.80"), ("2", "mnemonics_adjust", "15.22")],
)
def test_a_number_that_the_paper_prints_otherwise_elsewhere_is_marked(
  tmp_path, table, name, number
):
  request = tables.request(
    tmp_path, table=table, dataset="cifar100", phases="10,25", rows=name
  )
  (row,) = request.rows
  cells = [table_cells.pending(row, n, 0, "") for n in (10, 25)]
  sheet = table_cells.Sheet(
    table, "cifar100", "short", request.available, cells
  )
  text = views.markdown(sheet, {"commands": []})
  assert f"| 13.38 | not run | {number} † |" in text
  note = (
    f"† The paper contradicts itself: for forgetting of this run ({row.label},"
    " N = 25) it prints 19.80 in Table 1, 15.22 in Table 2, 19.80 in Table S2."
  )
  assert note in text and note in views.html(sheet, {"commands": []})
  early = table_cells.Sheet(
    table, "cifar100", "short", request.available, cells[:1]
  )
  assert "†" not in views.markdown(early, {"commands": []})


def test_differences_are_taken_to_every_reference(tmp_path):
  request = tables.request(tmp_path, table="1", phases="5")
  cells, offsets = [], {"lwf": 0.0, "lwf_equal": 0.01, "lwf_mnemonics": 0.04}
  for row in request.rows:
    if row.name in offsets:
      path = tmp_path / row.name
      report_fixture.write(path, seeds=(0,), offset=offsets[row.name])
      cell = table_cells.pending(row, 5, 0, path.name) | {"departures": []}
      cells.append(table_cells.finished(cell, runs.load_run(path)))
  sheet = table_cells.Sheet("1", "digits", "short", request.available, cells)
  text = views.markdown(sheet, {"commands": []})
  for pair, points in {
    "LwF, equal components − LwF": "+1.00",
    "LwF with mnemonics − LwF": "+4.00",
    "LwF with mnemonics − LwF, equal components": "+3.00",
  }.items():
    assert f"| {pair} | 1 | {points} | **{points}** | {points} |" in text


def test_the_page_has_the_numbers_of_the_text(sheet):
  page = views.html(sheet, {"commands": ["python -m <b>"]})
  for part in ("62.98", "61.86", "failed", "net resnet8 (paper: resnet32)"):
    assert part in page
  assert "<b>" not in page
