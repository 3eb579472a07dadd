"""Figures of a table: their numbers, and rows that look like relatives."""

import pytest
from support import tables

from experiments.tables import cells as table_cells
from experiments.tables import figures
from experiments.tables.cells import Sheet
from mnemonics_jax.report.draw import COLORS


def cell(row, phases, seed, *accuracies):
  both = {"head": list(accuracies), "nme": [0.1] * len(accuracies)}
  return table_cells.pending(row, phases, seed, "") | {
    "status": "finished",
    "readout": "head",
    "classes_seen": list(range(5, 5 + len(accuracies))),
    "accuracy": {"final": both},
  }


def test_curves_are_means_over_seeds_for_every_n(tmp_path):
  plan = tables.table(tmp_path, rows="herding,mnemonics")
  one, other = plan.row("herding"), plan.row("mnemonics")
  cells = [
    cell(one, 5, 0, 0.8, 0.6), cell(one, 5, 1, 0.7, 0.6), cell(other, 5, 0, 0.9, 0.5),
    cell(one, 10, 0, 0.4, 0.3),
  ]  # fmt: skip
  five, ten = figures.curves(Sheet(plan, cells))
  assert (five.name, ten.name) == (f"{plan.name}_n5", f"{plan.name}_n10")
  found = {tuple(row[:3]): row[3:] for row in five.rows}
  assert found["herding", "reported", 5] == pytest.approx(
    [2, 75, 63.531], rel=1e-5
  )  # t(1) = 12.706.
  assert found["herding", "reported", 6] == pytest.approx([2, 60, 0])
  assert found["mnemonics", "reported", 5] == [1, 90, None]
  assert found["mnemonics", "nme", 6] == [1, 10, None]
  assert {row[0] for row in ten.rows} == {"herding"}
  lines = {line.get_label(): line for line in five.figure.axes[0].lines}
  assert list(lines[other.label].get_ydata()) == pytest.approx([90, 50])


@pytest.mark.parametrize(
  "table, family",
  [
    ("1", ["lucir", "lucir_equal", "lucir_mnemonics"]),
    ("2", ["herding", "herding_adjust"]),
  ],
)
def test_relatives_share_a_colour_and_differ_in_their_lines(
  tmp_path, table, family
):
  plan = tables.table(tmp_path, table=table)
  drawn = Sheet(plan, [])
  looks = {row.name: figures._style(drawn, row) for row in plan.rows}
  assert len({looks[name]["color"] for name in family}) == 1
  assert len({str(looks[name]["linestyle"]) for name in family}) == len(family)
  others = {looks[n]["color"] for n in looks if n.split("_")[0] != family[0]}
  assert looks[family[0]]["color"] not in others
  assert looks["joint"]["linestyle"] == ":"


def test_rows_of_a_study_have_one_style_after_the_other(tmp_path):
  names = [f"row {i}" for i in range(2 * len(COLORS))]
  rows = {name: {"settings": {}} for name in names}
  plan = tables.study(tmp_path, changes={"rows": rows})
  looks = [figures._style(Sheet(plan, []), row) for row in plan.rows]
  assert [look["color"] for look in looks] == [*COLORS, *COLORS]
  assert {look["linestyle"] for look in looks[: len(COLORS)]} == {"-"}
  assert "-" not in {look["linestyle"] for look in looks[len(COLORS) :]}


def test_nothing_is_drawn_of_nothing(tmp_path):
  drawn = Sheet(tables.table(tmp_path, rows="herding"), [])
  figures.write(drawn)
  assert figures.written(drawn) == ([], [])
  assert not (tmp_path / "tables").exists()
