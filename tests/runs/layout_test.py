"""Files come back as they were written, and damage is told in a sentence."""

import copy
import json
from pathlib import Path
import re

import pytest
from support import report_fixture

from mnemonics_jax.runs import layout
from mnemonics_jax.runs import results as results_lib
from mnemonics_jax.runs.layout import (
  Each,
  Maybe,
  OrNull,
  WorkdirError,
  mismatch,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def workdir(tmp_path):
  return report_fixture.write(tmp_path / "run", seeds=(0,), learned=True)


def test_names_of_files():
  """Users and older runs rely on them."""
  run = Path("run")
  assert layout.config_path("run") == run / "config.json"
  assert layout.metrics_path("run") == run / "metrics.jsonl"
  assert layout.results_path("run") == run / "results.json"
  assert layout.seed_dir("run", 3) == run / "seed_3"
  assert layout.seed_result_path("run", 3) == run / "seed_3" / "result.json"
  assert layout.phase_arrays_path("run", 3, 7) == run / "seed_3/phase_07.npz"
  assert layout.phase_arrays_path("run", 3, 100).name == "phase_100.npz"
  assert layout.checkpoint_dir("run", 3) == run / "seed_3" / "checkpoints"


# JSON


def test_a_configuration_comes_back_with_its_format(tmp_path):
  config = {"command": "python", "settings": {"ü": [1, None]}, "data": 7}
  layout.write_config(tmp_path / "new", config)
  assert layout.read_config(tmp_path / "new") == {"format": 2, **config}


def test_the_format_of_earlier_runs_is_1(workdir):
  assert "format" not in json.loads((workdir / "config.json").read_text())
  assert layout.read_config(workdir)["settings"]["method"] == "lucir"


def test_no_configuration_is_an_empty_one(tmp_path):
  assert layout.read_config(tmp_path) == {}


def test_a_newer_format_is_refused(workdir):
  path = workdir / "config.json"
  path.write_text(json.dumps({"format": 3, "settings": {}}))
  # Whatever results look like then: it is the version that is told.
  (workdir / "results.json").write_text("{}")
  expected = r"has format 3, and this .* up to 2; install .*newer one\."
  for read in (layout.read_config, results_lib.load_run):
    with pytest.raises(WorkdirError, match=expected) as caught:
      read(workdir)
    assert caught.value.field == "config.json"


def test_results_come_back(workdir):
  results = json.loads((workdir / "results.json").read_text())
  assert layout.read_results(workdir) == results
  layout.write_results(workdir, results)
  assert layout.read_results(workdir) == results
  layout.write_seed_result(workdir, 5, results["runs"][0])
  assert layout.read_seed_result(workdir, 5) == results["runs"][0]


def test_json_is_written_as_it_always_was(tmp_path):
  """The bytes of results.json are compared between versions."""
  layout.write_results(tmp_path, {"a": [0.1, None], "b": "ü"})
  expected = b'{\n "a": [\n  0.1,\n  null\n ],\n "b": "\\u00fc"\n}\n'
  assert (tmp_path / "results.json").read_bytes() == expected


@pytest.mark.parametrize(
  "text", ["", "{", "[]", "\udcff\udcfe", "[" * 100_000, '{"settings": 3}']
)
def test_damaged_json_gets_a_sentence(tmp_path, text):
  data = text.encode("utf-8", "surrogateescape")
  (tmp_path / "config.json").write_bytes(data)
  with pytest.raises(WorkdirError, match=r"config\.json is damaged") as caught:
    layout.read_config(tmp_path)
  assert re.fullmatch(r".+ is damaged \(.+\); repeat .+\.", str(caught.value))
  assert caught.value.field == "config.json"


def test_what_can_be_written_again_is_said(tmp_path):
  for read in (
    layout.read_results,
    lambda path: layout.read_seed_result(path, 0),
  ):
    for path in (
      layout.results_path(tmp_path), layout.seed_result_path(tmp_path, 0)
    ):  # fmt: skip
      path.parent.mkdir(exist_ok=True)
      path.write_text("{}")
    with pytest.raises(WorkdirError, match="; remove it and repeat"):
      read(tmp_path)


def test_a_directory_in_its_place_cannot_be_read(tmp_path):
  (tmp_path / "results.json").mkdir()
  with pytest.raises(WorkdirError, match=r"results.json cannot be read \("):
    layout.read_results(tmp_path)


def _without(value):
  """Every copy of a JSON value that lacks one field, with the field's path."""
  if isinstance(value, dict):
    for name in value:
      yield [name], {k: v for k, v in value.items() if k != name}
  pairs = value.items() if isinstance(value, dict) else enumerate(value)
  for key, inner in pairs:
    if isinstance(inner, dict | list):
      for path, changed in _without(inner):
        whole = copy.copy(value)
        whole[key] = changed
        yield [key, *path], whole


def test_every_field_of_results_is_checked_or_optional(workdir):
  results = layout.read_results(workdir)
  tolerated = set()
  for path, changed in _without(results):
    layout.write_results(workdir, changed)
    try:
      layout.read_results(workdir)
    except WorkdirError as error:
      # The sentence names the field, or the read-out that lacks it.
      assert str(path[-1]) in str(error)
    else:
      tolerated.add(path[-1])
  # `diagnostics` has fields of its own, which come and go with the method.
  history = {"loss", "displacement", "cosine", "euclidean"}
  stages, moments = {"exemplars", "adjust"}, {"trained", "final"}
  assert tolerated - history - stages == {
    *moments, "preset", "departures", "moments", "diagnostics", "ci95",
    "head", "nme",
  }  # fmt: skip


@pytest.mark.parametrize(
  ("change", "problem"),
  [
    (lambda r: r["class_names"].pop(), "class_names and classes_per_phase"),
    (
      lambda r: r.update(readout="other"),
      "summary lacks other, the reported read-out",
    ),
    (lambda r: r["runs"][0]["phases"].pop(), "seed 0 does not have 3 phases"),
    (
      lambda r: r["summary"]["nme"]["per_phase"].pop(),
      "summary.nme.per_phase does not have 3 entries",
    ),
    (
      lambda r: r["runs"][0]["average"].pop("nme"),
      "seed 0 lacks numbers for nme",
    ),
    (
      lambda r: r["runs"][0]["phases"][2]["by_group"]["head"].pop(),
      "seed 0 lacks class groups for head",
    ),
  ],
)
def test_parts_that_disagree_get_a_sentence(workdir, change, problem):
  results = layout.read_results(workdir)
  change(results)
  layout.write_results(workdir, results)
  with pytest.raises(WorkdirError, match=problem):
    layout.read_results(workdir)


# The document for those who read the files themselves.


def _fields(shape):
  if isinstance(shape, Each | Maybe | OrNull):
    return _fields(shape.shape)
  if isinstance(shape, list):
    return _fields(shape[0])
  if isinstance(shape, dict):
    return {*shape, *(name for s in shape.values() for name in _fields(s))}
  return set()


def test_the_document_names_every_field_and_array():
  text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
  text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
  named = set(re.findall(r"`([^`]+)`", text))
  for shape in (layout.CONFIG, layout.RESULTS, layout.METRICS):
    assert _fields(shape) <= named
  assert layout.PHASE_ARRAYS.keys() <= named
  assert f"format {layout.FORMAT}" in text


def test_the_examples_of_the_document_run(workdir, monkeypatch, capsys):
  text = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
  examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
  assert len(examples) >= 2
  (workdir.parent / "runs").mkdir()
  workdir.rename(workdir.parent / "runs" / "digits")
  monkeypatch.chdir(workdir.parent)
  for example in examples:
    exec(compile(example, "formats.md", "exec"), {})
  title, shape = capsys.readouterr().out.splitlines()
  # One seed: head has 0.9, 0.8 and 0.7. Five classes, 15 of 20 right of each.
  assert title.startswith("digits") and "0.80" in title and "None" in title
  assert shape == "(5, 4, 8, 8, 3) 75"


def test_shapes():
  shape = {"a": [{"b": OrNull(int)}], "c": Maybe(Each(str))}
  assert mismatch({"a": [{"b": None}, {"b": 1}], "more": 1}, shape) == ""
  assert mismatch({"a": [{"b": 1}], "c": {"x": "y"}}, shape) == ""
  for value, problem in [
    ([], "it should be an object"),
    ({"c": {}}, "lacks a"),
    ({"a": []}, "a should be a list with at least one entry"),
    ({"a": {}}, "a should be a list with at least one entry"),
    ({"a": [{"b": 1}, {}]}, "a[1] lacks b"),
    ({"a": [{"b": "1"}]}, "a[0].b has a wrong type"),
    ({"a": [{"b": 1}], "c": None}, "c should be an object"),
    ({"a": [{"b": 1}], "c": {"x": 1}}, "c.x has a wrong type"),
  ]:
    assert mismatch(value, shape) == problem
