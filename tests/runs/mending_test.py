"""Damaged files of a run are made again from what is whole."""

import json
import shutil

import pytest
from support import finished_run, interrupted

from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import layout

WRONG = [
  '{"settings": ',
  "{}",
  "[]",
  '{"settings": 3}',
  '{"results": {}}',
  None,
]


@pytest.mark.parametrize("text", WRONG)
def test_a_configuration_is_written_again(workdir, capsys, text):
  path = layout.config_path(workdir)
  before = layout.read_config(workdir)
  path.unlink() if text is None else path.write_text(text)
  interrupted.run_until(workdir, 1)
  output = capsys.readouterr().out
  assert f"{path} was damaged or missing, and was written again" in output
  assert "Continuing seed 0 in phase 2" in output
  after = layout.read_config(workdir)
  for name in before.keys() - {"environment", "command"}:
    assert after[name] == before[name]


@pytest.mark.parametrize("text", ["{", "{}", None])
def test_other_settings_do_not_take_a_damaged_directory(workdir, text):
  path = layout.config_path(workdir)
  path.unlink() if text is None else path.write_text(text)
  before = sorted(workdir.rglob("*"))
  with pytest.raises(UserError, match=r"of these settings|is not a run"):
    interrupted.run(workdir, seeds=(0, 1))
  assert sorted(workdir.rglob("*")) == before


@pytest.fixture
def finished(tmp_path):
  return finished_run.write(tmp_path / "run")


def _again(path):
  finished_run.learn(path, (3, 1), seeds=(0, 1))


@pytest.mark.parametrize(
  "text",
  ['{"seed": 0, "phases": [', "{}", '{"seed": "0"}', "other", "digit", None],
)
def test_a_result_is_written_again_from_the_last_checkpoint(finished, text):
  path = layout.seed_result_path(finished, 0)
  names = ("seed_0/result.json", "results.json", "metrics.jsonl")
  before = {name: (finished / name).read_bytes() for name in names}
  if text == "other":  # Of a seed that is not this one.
    text = layout.seed_result_path(finished, 1).read_text()
  if text == "digit":  # A wrong number looks like any other.
    text = path.read_text().replace("0.5", "0.6", 1).replace("0.3", "0.2", 1)
    assert text != path.read_text()
  path.unlink() if text is None else path.write_text(text)
  layout.results_path(finished).write_text("{}")
  _again(finished)
  assert {name: (finished / name).read_bytes() for name in names} == before


def test_a_result_without_checkpoints_is_named(finished):
  path = layout.seed_result_path(finished, 0)
  record = json.loads(path.read_text())
  del record["phases"][1]["accuracy"]["nme"]
  path.write_text(json.dumps(record))
  shutil.rmtree(layout.checkpoint_dir(finished, 0))
  with pytest.raises(layout.WorkdirError, match=r"remove it and repeat"):
    _again(finished)
