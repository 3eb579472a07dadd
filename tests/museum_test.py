"""Files of commit de09587 open, go on and keep their names in every later version.

`museum/write.py` says how each was made.
"""

import json
import shutil

from museum import made
import numpy as np
import pytest
from support import command

from mnemonics_jax import Learner, report, runs
from mnemonics_jax.memory import PerClass
from mnemonics_jax.progress import Event, StepReport

# Another CPU or compiler rounds differently; on the one that wrote the museum,
# results are equal.
_CLOSE = dict(rtol=1e-3, atol=1e-5)
_NAMES = json.loads((made.ROOM / "names.json").read_text())


@pytest.fixture
def museum(tmp_path):
  """A copy, so that the museum stays as it is."""
  to = tmp_path / "museum"
  shutil.copytree(made.ROOM, to, ignore=shutil.ignore_patterns("*.py", "__*"))
  return to


def _numbers(value, name=""):
  """All numbers of JSON, by their place."""
  if isinstance(value, dict):
    return {
      k: v
      for key, part in value.items()
      for k, v in _numbers(part, f"{name}/{key}").items()
    }
  if isinstance(value, list):
    return _numbers(dict(enumerate(value)), name)
  return {name: value}


def _assert_same_run(found, expected):
  """Two runs have the same results.json and the same losses."""
  ours, theirs = (
    _numbers(json.loads((run / "results.json").read_text()))
    for run in (found, expected)
  )
  assert ours.keys() == theirs.keys()
  for name, value in theirs.items():
    if isinstance(value, float):
      assert ours[name] == pytest.approx(value, rel=1e-3, abs=1e-4), name
    else:
      assert ours[name] == value, name
  ours, theirs = (
    [
      (line["phase"], line["stage"], line["epoch"], line["loss"])
      for line in runs.read_metrics(run)
      if line["kind"] == "epoch"
    ]
    for run in (found, expected)
  )
  assert [line[:3] for line in ours] == [line[:3] for line in theirs]
  np.testing.assert_allclose(
    [line[3] for line in ours], [line[3] for line in theirs], **_CLOSE
  )


def _trained(workdir, options=None, **changes):
  """Which stages a run trains, as (phase, stage)."""
  stages = []

  def hear(event: Event) -> None:
    if isinstance(event, StepReport) and event.metrics:  # An epoch has ended.
      stages.append((event.phase, event.stage))

  made.run(workdir, dict(report=hear, **(options or {})), **changes)
  return stages


def test_a_finished_run_is_finished_and_has_its_page(museum):
  expected = (museum / "run/results.json").read_bytes()
  assert _trained(museum / "run") == []
  assert (museum / "run/results.json").read_bytes() == expected
  page = report.build([museum / "run"])
  assert "lucir" in page.read_text(encoding="utf-8")


def test_an_interrupted_run_goes_on_where_it_was(museum):
  stages = _trained(museum / "interrupted")
  assert stages[0] == (1, "adjust") and (1, "train") not in stages
  _assert_same_run(museum / "interrupted", museum / "run")
  expected = np.load(made.ROOM / "run/seed_0/phase_01.npz")
  found = np.load(museum / "interrupted/seed_0/phase_01.npz")
  assert set(found) >= set(expected)
  np.testing.assert_array_equal(
    found["memory/counts"], expected["memory/counts"]
  )
  off = np.abs(
    found["memory/images"].astype(int) - expected["memory/images"].astype(int)
  )
  assert off.max() <= 1


@pytest.mark.parametrize("name", ["run", "learner", "export"])
def test_what_was_learned_predicts_as_before(museum, name):
  learner, known = Learner.load(museum / name)
  expected = np.load(museum / "expected.npz")
  images = made.dataset().test_images
  np.testing.assert_allclose(
    learner.predict_proba(known, images),
    expected["run" if name == "run" else "learner"],
    **_CLOSE,
  )


def test_a_saved_learner_is_the_learner_that_was_saved(museum):
  learner, known = Learner.load(museum / "learner")
  exported, also = Learner.load(museum / "export")
  assert learner == exported == made.learner()
  assert known.names == also.names == (0, 1, 2)
  for one, other in zip(known.exemplars, also.exemplars, strict=True):
    np.testing.assert_array_equal(one, other)
  images = made.dataset().train_images[:8]
  assert learner.learn(known, images, ["new"] * 8).names == (0, 1, 2, "new")
  learner.save(known, museum / "learner")  # In place of what was there.
  assert Learner.load(museum / "learner")[1].names == known.names


@pytest.mark.parametrize("kept", ["base_models", "published"])
def test_a_model_of_phase_0_is_found(museum, kept):
  before = sorted((museum / kept).iterdir())
  stages = _trained(
    museum / "again",
    dict(base_models=museum / kept),
    exemplars="herding",
    adjust=False,
    memory=PerClass(3),
  )
  assert (0, "train") not in stages and (1, "train") in stages
  assert sorted((museum / kept).iterdir()) == before


@pytest.mark.parametrize("name", _NAMES)
def test_a_command_finds_the_directory_of_its_run(tmp_path, name):
  directory = tmp_path / "runs" / _NAMES[name]["directory"]
  directory.mkdir(parents=True)
  config = json.dumps(_NAMES[name]["config"])
  (directory / "config.json").write_text(config)
  assert made.named(name, tmp_path) == directory
  assert (directory / "config.json").read_text() == config


_TABLES = {
  "table": (
    "--table=2", "--dataset=digits", "--rows=random,herding", "--root=root",
    "--preset=smoke", "--phases=1", "--images_per_class=10", "--epochs=1",
  ),
  "plan": ("--plan=plan.yaml", "--root=root"),
}  # fmt: skip


@pytest.mark.parametrize("name", _TABLES)
def test_a_table_knows_its_cells(museum, name):
  root = museum / "commands"
  files = [*root.glob("root/tables/*.json"), root / "plan.json"]
  before = {path: json.loads(path.read_text()) for path in files}
  outcome = command.call("tables", *_TABLES[name], cwd=root)
  assert not outcome.code, outcome
  assert "2 cells, of which 2 have finished" in outcome.out
  for path, table in before.items():
    found, expected = _numbers(json.loads(path.read_text())), _numbers(table)
    assert {name: found.get(name) for name in expected} == expected


def test_a_command_shows_a_run_that_has_finished(museum):
  flags = ("--preset=smoke", "--phases=1", "--images_per_class=10")
  outcome = command.call(
    "digits", *flags, "--epochs=1", "--workdir=command", cwd=museum / "commands"
  )
  assert not outcome.code, outcome
  assert "average" in outcome.out
