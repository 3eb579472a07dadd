"""Rows of the paper's tables: what they set."""

import dataclasses

import pytest
from support import command, tables, tiny

from experiments import flags as flags_lib
from experiments.paper import departures
from experiments.tables import rows as table_rows
from mnemonics_jax import registry
from mnemonics_jax.phase import Phase, begin_run
from mnemonics_jax.runs import base_models
from mnemonics_jax.settings.build import build

METHODS = ("lwf", "icarl", "bic", "lucir")


def test_rows_of_table_1_are_baselines_equal_components_and_mnemonics(tmp_path):
  request = tables.request(tmp_path, table="1")
  found = {row.name: request.settings(row, 5, 0) for row in request.rows}
  kinds = {
    "": ("herding", False, "none", "none"),
    "_equal": ("herding", False, "in_out", "head"),
    "_mnemonics": ("mnemonics", True, "in_out", "head"),
  }
  assert list(found) == [method + kind for method in METHODS for kind in kinds]
  for method in METHODS:
    for kind, expected in kinds.items():
      s = found[method + kind]
      assert s.method == method and s.memory == "per_class:5"
      assert (s.exemplars, s.adjust, s.transfer, s.finetune) == expected


@pytest.mark.parametrize("table", ["1", "s1"])
def test_what_learning_adds_can_be_read_off_every_method(tmp_path, table):
  # Exemplars are all in which mnemonics differs from equal components, also
  # when a flag changes these.
  request = tables.request(tmp_path, table=table, transfer="none")
  rows = {row.name: row for row in request.rows}
  for method in METHODS:
    learned = rows[f"{method}_mnemonics"]
    assert learned.references == (method, f"{method}_equal")
    assert rows[f"{method}_equal"].references == (method,)
    pair = [
      request.settings(rows[name], 5, 0)
      for name in (learned.name, learned.references[1])
    ]
    differ = {
      field.name
      for field in dataclasses.fields(pair[0])
      if getattr(pair[0], field.name) != getattr(pair[1], field.name)
    }
    assert differ == {"exemplars", "adjust"}


@pytest.mark.parametrize("table", table_rows.TABLES)
def test_unreduced_rows_are_cells_of_the_paper(tmp_path, table):
  request = tables.request(
    tmp_path, table=table, dataset="cifar100", preset="paper"
  )
  for row in request.available:
    settings = request.settings(row, 10, 0)
    assert departures(settings, request.published(row)) == [], row.name
    if row.paper is not None:  # Then it is one wherever it is found.
      assert departures(settings) == [], row.name


def test_all_rows_of_table_2_transfer_and_finetune(tmp_path):
  for preset, finetune, recipe in [
    ("short", "head", "tuned"), ("paper", "all", "paper")
  ]:  # fmt: skip
    request = tables.request(tmp_path, preset=preset, dataset="cifar100")
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
    learned = [s.recipe for s in cells if s.exemplars == "mnemonics"]
    assert learned == [recipe] * 2


def test_budget_and_distillation_tables(tmp_path):
  budget = tables.request(tmp_path, table="s1")
  assert budget.settings(budget.rows[0], 5, 0).memory == "total:20"
  budget = tables.request(tmp_path, table="s1", dataset="cifar100")
  assert budget.settings(budget.rows[0], 5, 0).memory == "total:2000"
  request = tables.request(tmp_path, table="s2")
  found = {row.name: request.settings(row, 5, 0) for row in request.rows}
  assert not found["nodistill"].distill and found["distill"].distill


@pytest.mark.parametrize("preset", registry.PRESETS)
@pytest.mark.parametrize("table", table_rows.TABLES)
def test_a_cell_is_the_run_that_its_flags_ask_for(tmp_path, table, preset):
  request = tables.request(
    tmp_path, table=table, preset=preset, dataset="cifar100"
  )
  for row in request.available:
    cell = request.settings(row, 5, 0)
    idle = cell.idle
    flags = {
      name: str(value)
      for name, value in {
        **row.defaults, **row.fixed, **request.memory
      }.items()
      if name not in idle
    }  # fmt: skip
    given = dict(preset=preset, phases="5", **flags)
    values = command.parsed(flags_lib.of_run("cifar100"), **given)
    run = flags_lib.settings(values, "cifar100")
    assert run.identity() == cell.identity(), row.name


def test_cells_that_drew_exemplars_4_times_can_still_be_asked_for(tmp_path):
  """Table S1 drew so until presets heard of its memory; now --rehearsal says it."""
  flags = dict(table="s1", dataset="cifar100")
  (now, before) = (
    tables.request(tmp_path, **flags, **more)
    for more in ({}, {"rehearsal": "4"})
  )
  row = now.rows[0]
  assert now.settings(row, 5, 0).rehearsal == "once"
  name = before.workdir(row, 5, 0, 17).name
  assert name == "cifar100_lwf_herding_total-2000_n5_b85cbfa4"
  assert now.workdir(row, 5, 0, 17).name != name


TUNED = {"lucir_equal", "lucir_mnemonics", "lwf_equal", "lwf_mnemonics"}


@pytest.mark.parametrize(
  "table, flags, moved",
  [
    ("1", dict(max_change="4"), {"lucir_mnemonics", "lwf_mnemonics"}),
    ("1", dict(finetune_epochs="3"), TUNED),
    ("1", dict(finetune="all"), TUNED),
    ("1", dict(less_forget="7"), {"lucir", "lucir_equal", "lucir_mnemonics"}),
    ("s2", dict(less_forget="7"), {"distill"}),
    ("2", dict(init_exemplars="random"), {"mnemonics", "mnemonics_adjust"}),
  ],
)
def test_flags_reach_only_the_rows_they_matter_to(
  tmp_path, table, flags, moved
):
  plain = tables.request(tmp_path, table=table)
  given = tables.request(tmp_path, table=table, **flags)
  assert given.name != plain.name == f"table_{table}_digits_short"
  for row in plain.rows:
    if row.name.startswith(("icarl", "bic")):  # As lwf.
      continue
    before, after = (r.settings(row, 5, 0).identity() for r in (plain, given))
    assert (before == after) == (row.name not in moved), row.name


def test_rows_share_the_base_models_they_have_in_common(tmp_path):
  digits = tiny.dataset(classes=10, train=20)
  names = {}
  for table in ("1", "s2"):
    request = tables.request(tmp_path, table=table, seeds="0", phases="1")
    for row in request.available:
      config, stream = build(request.settings(row, 1, 0), digits)
      phase = Phase(begin_run(0, config), stream[0], config)
      names[row.name] = base_models._name(phase)
  assert names["lucir"] == names["lucir_mnemonics"] == names["lucir_equal"]
  assert names["lucir"] == names["distill"] == names["nodistill"]
  assert names["bic"] == names["bic_mnemonics"] != names["lucir"]
