"""A plan is read as flags would be, and its mistakes are told in a sentence."""

import json
from pathlib import Path
import re

import pytest
from support import command, tables
from support.plans import request, write

from experiments.paper import departures
from experiments.tables import plan as plan_lib
from mnemonics_jax.errors import UserError

ROOT = Path(__file__).parents[3]


def test_rows_have_the_settings_of_the_plan(tmp_path):
  asked = request(tmp_path)
  once, four = (asked.settings(row, 2, 1) for row in asked.rows)
  assert (once.rehearsal, four.rehearsal) == ("once", "4")
  assert (once.distill, four.distill) == (True, False)
  for settings in (once, four):
    assert settings.exemplars == "herding" and settings.seeds == (1,)
    assert (settings.dataset, settings.preset) == ("digits", "smoke")
    assert settings.epochs == 2  # Of the preset.
  assert [row.label for row in asked.rows] == ["once", "four times"]
  assert asked.rows[1].references == ("once",)


def test_a_method_of_all_rows_is_that_of_each(tmp_path):
  asked = request(
    tmp_path, settings={"exemplars": "herding", "method": "icarl"}
  )
  assert [asked.settings(row, 2, 0).method for row in asked.rows] == [
    "icarl"
  ] * 2
  assert {row.fixed["method"] for row in asked.rows} == {"icarl"}


def test_rows_are_what_flags_would_make_of_them(tmp_path):
  """A fine-tune that is the method's own, stages of learned exemplars only."""
  rows = {
    "e2e": {"settings": {"method": "e2e"}},
    "lwf": {"settings": {"method": "lwf"}},
    "learned": {"settings": {"exemplars": "mnemonics"}},
  }
  path = write(tmp_path / "plan.yaml", preset="paper", rows=rows)
  asked = tables.asked(plan=str(path), root=str(tmp_path))
  found = [asked.settings(row, 2, 0) for row in asked.rows]
  assert [(s.adjust, s.transfer, s.finetune) for s in found] == [
    (False, "none", "all"), (False, "none", "none"), (True, "in_out", "all"),
  ]  # fmt: skip


def test_flags_choose_among_rows_and_seeds_only(tmp_path):
  asked = request(tmp_path, rows="four", seeds="1")
  assert [(row.name, n, seed) for row, n, seed in asked.cells()] == [
    ("four", 2, 1)
  ]
  for wrong in (
    {"seeds": "2"},
    {"epochs": "3"},
    {"dataset": "cifar100"},
    {"upper_bound": "true"},
  ):
    with pytest.raises(UserError, match="plan"):
      request(tmp_path, **wrong)


MISTAKES = [
  ({"preset": "best of all"}, "preset"),
  ({"dataset": "mnist"}, "dataset"),
  ({"seeds": []}, "seeds"),
  ({"settings": {"epoch": 3}}, "epoch is no setting"),
  ({"settings": {"method": "lucifer"}}, "method"),
  ({"settings": {"seeds": 3}}, "seeds is no setting"),
  ({"rows": {"one": {"settings": {}, "minus": ["two"]}}}, "two, which is none"),
  ({"rows": {"one": {"setting": {}}}}, "lacks settings"),
  ({"rows": {"one": {"settings": {}, "color": "red"}}}, "color"),
  ({"rows": {"one": {"settings": {"max_change": 2}}}}, "max_change"),
  ({"questions": "Why?"}, "questions is not known"),
  ({"rows": {}}, "it has no rows"),
  (
    {
      "dataset": "imagenet_subset",
      "rows": {"small": {"settings": {"image_size": 32}}},
    },
    "row small: image_size is of the data, which are loaded once for all rows);"
    " put it into the plan's own settings",
  ),
  ({"settings": {"image_size": 32}}, "`image_size` has no effect with digits"),
]


@pytest.mark.parametrize("changes, named", MISTAKES)
def test_mistakes_are_told_in_a_sentence(tmp_path, changes, named):
  path = write(tmp_path / "wrong.yaml", **changes)
  with pytest.raises(UserError, match=re.escape(named)):
    plan_lib.load(path)


def test_all_rows_may_have_other_data(tmp_path):
  path = write(
    tmp_path / "small.yaml",
    dataset="imagenet_subset",
    settings={"exemplars": "herding", "image_size": 32},
  )
  assert plan_lib.load(path).settings["image_size"] == 32


@pytest.mark.parametrize("content", [b"a: [", b"text", b"\xff"])
def test_what_is_no_plan_is_refused(tmp_path, content):
  path = tmp_path / "no.yaml"
  path.write_bytes(content)
  with pytest.raises(UserError, match=r"no\.yaml"):
    plan_lib.load(path)
  done = command.call("tables", f"--plan={tmp_path / 'none'}", cwd=tmp_path)
  command.assert_refused(done, "--plan=")


def test_the_plans_of_the_repository_can_be_run(monkeypatch):
  monkeypatch.chdir(ROOT)  # They name models that come with it.
  plans = sorted((ROOT / "results/studies").glob("*.yaml"))
  assert plans
  for path in plans:
    assert plan_lib.load(path).rows, path


@pytest.mark.parametrize(
  "path",
  sorted((ROOT / "results/studies").glob("*.json")),
  ids=lambda p: p.stem,
)
def test_plans_still_say_what_was_measured(monkeypatch, path):
  """A preset that changes must not change what cells were; their plan says it."""
  monkeypatch.chdir(ROOT)
  asked = tables.asked(plan=str(path.with_suffix(".yaml")))
  rows = {row.name: row for row in asked.available}
  for key, cell in json.loads(path.read_text())["cells"].items():
    settings = asked.settings(rows[cell["row"]], cell["phases"], cell["seed"])
    of_data = [d for d in cell["departures"] if d.startswith("a part of the")]
    assert departures(settings, None) + of_data == cell["departures"], key


def test_made_up_tables_still_have_their_directory(tmp_path):
  asked = tables.request(tmp_path)
  assert asked.directory == tmp_path / "tables" and asked.plan is None
