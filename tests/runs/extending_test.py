"""A copy of a run goes on with new classes."""

import json
import math
import re
import shutil

import jax
import numpy as np
import pytest
from support import finished_run, tiny

from mnemonics_jax import Learner, UserError, data, phase, report, runs
from mnemonics_jax.progress import StepReport
from mnemonics_jax.runs import artifact, extending, layout
from mnemonics_jax.runs.journal import pack_state, unpack_state

NEW = ("class 4", "class 5")


def folder(root, classes, splits=("train", "val")):
  finished_run.write_folder(root, classes, splits)
  return data.load(
    "folder", root, image_size=8, cache_dir=root / "cache", least_classes=1
  )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  home = tmp_path_factory.mktemp("home")
  finished_run.write(home / "run")
  return home


@pytest.fixture(scope="module")
def everything(home):
  """Images of all classes, learned ones included."""
  return folder(home / "data", range(6))


@pytest.fixture(scope="module")
def longer(home, everything):
  before = stamps(home / "run")
  results = runs.extend(home / "run", everything, home / "longer")
  assert stamps(home / "run") == before
  return results


def stamps(path):
  return {p: p.stat().st_mtime_ns for p in path.rglob("*")}


def test_old_phases_stay_and_new_ones_follow(home, longer):
  before = layout.read_results(home / "run")
  assert longer["seeds"] == [0, 1]
  assert longer["class_names"] == [*before["class_names"], *NEW]
  assert longer["classes_per_phase"] == [3, 1, 2]
  for old, run in zip(before["runs"], longer["runs"], strict=True):
    assert run["phases"][:2] == old["phases"]
    assert run["phases"][2]["classes_seen"] == 6
    assert "classes_tested" not in run["phases"][2]
  assert layout.read_results(home / "longer") == longer
  config = layout.read_config(home / "longer")
  assert config["settings"]["extended_by"] == list(NEW)


def saved(path, phase):
  name = f"seed_0/checkpoints/phase_{phase:02d}"
  return artifact.restore(path / name)


def same(one, other):
  equal = jax.tree.map(lambda a, b: np.array_equal(a, b), one, other)
  return jax.tree.all(equal)


def test_checkpoints_have_the_room_as_if_they_had_had_it(home, longer):
  del longer
  config, _ = tiny.setup(
    finished_run.METHOD, split=(3, 1, 2), **finished_run.OPTIONS
  )
  fresh = phase.begin_run(0, config).variables["params"]["head"]["weight"]
  for number in range(2):
    (old, was), (new, info) = (
      saved(home / run, number) for run in ("run", "longer")
    )
    backbones = [tree["variables"]["params"]["backbone"] for tree in (old, new)]
    assert same(*backbones) and same(old["key"], new["key"])
    assert same(old["memory"]["images"], new["memory"]["images"])
    counts = [*old["memory"]["counts"], 0, 0]
    assert new["memory"]["counts"].tolist() == counts
    weight = new["variables"]["params"]["head"]["weight"]
    before = old["variables"]["params"]["head"]["weight"]
    assert np.array_equal(weight, np.concatenate([before, fresh[4:]]))
    assert info == was | {"log": None}


def test_new_phases_are_phases_like_any_other(home, longer):
  """To the bit, with data that have never been in a folder."""
  config, stream = tiny.setup(
    finished_run.METHOD,
    split=(3, 1, 2),
    data=finished_run.ALL,
    **finished_run.OPTIONS,
  )
  state = unpack_state(
    phase.begin_run(0, config).memory, *saved(home / "longer", 1)
  )
  state, result = phase.run_phase(state, stream[2], config)
  assert same(pack_state(state), saved(home / "longer", 2)[0])
  counts = result.confusion["final"]["head"]
  accuracy = longer["runs"][0]["phases"][2]["accuracy"]["head"]
  assert np.trace(counts) / counts.sum() == accuracy


def test_metrics_have_every_phase_of_every_seed_once(home, longer):
  del longer
  lines = runs.read_metrics(home / "longer")
  phases = [
    (line["seed"], line["phase"]) for line in lines if line["kind"] == "phase"
  ]
  assert sorted(phases) == [(s, p) for s in (0, 1) for p in range(3)]
  epochs = [
    (line["seed"], line["phase"], line["stage"], line["epoch"])
    for line in lines
    if line["kind"] == "epoch"
  ]
  assert len(set(epochs)) == len(epochs) == 2 * 3 * (8 + 1)


def test_the_report_shows_old_and_new_phases(home, longer):
  page = report.build([home / "longer"]).read_text()
  assert "tell 6 classes of tiny and more" in page and "extended" in page
  table = report.console_table(longer).splitlines()
  assert [line.split()[:2] for line in table[5:8]] == [
    ["0", "3"],
    ["1", "4"],
    ["2", "6"],
  ]


def test_it_is_a_run_to_predict_with(home, longer):
  learner, known = Learner.load(home / "longer", seed=1)
  shown, labels = finished_run.ALL.test_images, finished_run.ALL.test_labels
  names = [f"class {label}" for label in labels]
  scores = learner.evaluate(known, shown, names)
  accuracy = longer["runs"][1]["phases"][2]["accuracy"]["head"]
  assert scores.accuracy == accuracy
  _, earlier = Learner.load(home / "longer", seed=1, phase=0)
  assert earlier.names == ("class 0", "class 1", "class 2")


class Interrupted(BaseException):
  pass


def test_an_interruption_changes_nothing(home, everything, longer):
  """Wherever it comes: in the first seed, and in the second."""

  before = len(runs.read_metrics(home / "run"))

  def stop_after(lines):
    def hear(event):
      # Some epochs are over, and no checkpoint knows of the last one.
      written = len(runs.read_metrics(home / "broken")) - before
      if isinstance(event, StepReport) and written > lines:
        raise Interrupted

    return hear

  for lines in (3, 13):  # Each seed adds ten.
    with pytest.raises(Interrupted):
      runs.extend(
        home / "run", everything, home / "broken", report=stop_after(lines)
      )
  assert not (home / "broken" / "results.json").exists()
  assert runs.extend(home / "run", everything, home / "broken") == longer
  strip = lambda path: [
    {k: v for k, v in line.items() if k != "seconds"}
    for line in runs.read_metrics(path)
  ]
  assert strip(home / "broken") == strip(home / "longer")


def test_nothing_is_left_of_a_copy_that_failed(home, everything, monkeypatch):
  def full(*_):
    raise OSError(28, "No space left on device")

  monkeypatch.setattr(artifact, "save", full)
  with pytest.raises(UserError, match=r"cannot be written \(.*No space"):
    runs.extend(home / "run", everything, home / "full")
  assert not [path for path in home.iterdir() if path.name.startswith("full")]


def test_what_appears_while_a_copy_is_made_is_left_alone(
  home, everything, tmp_path, monkeypatch
):
  (tmp_path / "out").mkdir()
  copy = extending._copy_seed

  def slow(*args):
    (tmp_path / "out" / "thesis.txt").write_text("years")
    copy(*args)

  monkeypatch.setattr(extending, "_copy_seed", slow)
  with pytest.raises(UserError, match="is not a run of this program"):
    runs.extend(home / "run", everything, tmp_path / "out")
  assert (tmp_path / "out" / "thesis.txt").read_text() == "years"
  assert sorted(p.name for p in tmp_path.iterdir()) == ["out"]


@pytest.mark.parametrize("left", [(), ("lock", "config.json.1.draft")])
def test_a_second_extension_waits_for_the_copy(
  home, everything, tmp_path, monkeypatch, left
):
  """In a directory that is empty, but for what a kill may have left."""
  (tmp_path / "out").mkdir()
  for name in left:
    (tmp_path / "out" / name).touch()
  copy = extending._copy_seed

  def meanwhile(*args):
    with pytest.raises(runs.BusyError, match="is in use by process"):
      runs.extend(home / "run", everything, tmp_path / "out")
    copy(*args)

  monkeypatch.setattr(extending, "_copy_seed", meanwhile)
  results = runs.extend(home / "run", everything, tmp_path / "out")
  assert results["classes_per_phase"] == [3, 1, 2]
  assert [p.name for p in tmp_path.iterdir()] == ["out"]


# Where old classes cannot be tested.


@pytest.fixture(scope="module")
def untested(home):
  """One new class, and no image of the others."""
  notes = []
  results = runs.extend(
    home / "run",
    folder(home / "new", [5]),
    home / "untested",
    report=notes.append,
  )
  return results, notes


def no_constant(name):
  raise AssertionError(f"{name} in a file")


def test_what_cannot_be_measured_is_null(home, untested):
  results, _ = untested
  path = home / "untested"
  for file in (path / "results.json", path / "seed_0" / "result.json"):
    json.loads(file.read_text(), parse_constant=no_constant)
  for run in results["runs"]:
    last = run["phases"][2]
    assert last["classes_seen"] == 5 and last["classes_tested"] == 1
    for readout in ("head", "nme"):
      assert last["by_group"][readout][:2] == [None, None]
      new = last["by_group"][readout][2]
      assert last["accuracy"][readout] == new and math.isfinite(new)
      moment = last["moments"]["final"][readout]
      assert moment == {"all": new, "old": None, "new": new}
      assert run["forgetting"][readout] is None
      # Averages are over the phases that tested everything.
      both = [p["accuracy"][readout] for p in run["phases"][:2]]
      assert run["average"][readout] == pytest.approx(sum(both) / 2)
  summary = results["summary"]["head"]
  assert summary["forgetting"] == {"mean": None, "ci95": None}
  assert layout.read_results(path) == results


def test_a_person_is_told(home, untested):
  results, heard = untested
  texts = [event.text for event in heard if hasattr(event, "text")]
  assert any(
    "no test images of 4 learned classes (class 0," in t for t in texts
  )
  page = report.build([home / "untested"]).read_text()
  assert "1 of 5 classes (there were none of the others)" in page
  assert "Phase 2: there were test images of some classes only" in page
  words = re.sub(r'data:[^"]*"', "", page)  # Pictures have any letters.
  assert not re.search(r"\bnan\b", words, re.IGNORECASE)
  table = report.console_table(results)
  assert "1 of 5" in table
  assert table.splitlines()[-3].split() == ["forgetting", "–", "–"]
  for file in (home / "untested" / "figures").glob("*.csv"):
    assert "nan" not in file.read_text()


# Mistakes.


def test_what_cannot_be_extended(home, everything, tmp_path):
  with pytest.raises(UserError, match="no class that the run does not know"):
    known = folder(tmp_path / "known", range(2))
    runs.extend(home / "run", known, tmp_path / "out")
  with pytest.raises(UserError, match="`phases=3` cannot share 2 new classes"):
    runs.extend(home / "run", everything, tmp_path / "out", phases=3)
  with pytest.raises(UserError, match="is the run itself"):
    runs.extend(home / "run", everything, home / "run")
  with pytest.raises(UserError, match="no directory"):
    runs.extend(tmp_path / "no", everything, tmp_path / "out")
  (tmp_path / "mine").mkdir()
  (tmp_path / "mine" / "thesis.txt").write_text("years")
  with pytest.raises(UserError, match="is not a run of this program"):
    runs.extend(home / "run", everything, tmp_path / "mine")
  broken = shutil.copytree(home / "run", tmp_path / "run")
  shutil.rmtree(broken / "seed_1" / "checkpoints" / "phase_01")
  with pytest.raises(UserError, match="no checkpoint of seed 1"):
    runs.extend(broken, everything, tmp_path / "out")
  assert not (tmp_path / "out").exists()


def test_other_settings_in_the_same_place_are_refused(home, everything, longer):
  del longer
  with pytest.raises(UserError, match=r"extended_in_phases \(1 there, 2 now\)"):
    runs.extend(home / "run", everything, home / "longer", phases=2)
