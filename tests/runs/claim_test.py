"""A directory belongs to one configuration, on one set of data."""

import dataclasses
import json
import os
from pathlib import Path
import subprocess
import sys
import time

import pytest
from support import interrupted, tiny

from mnemonics_jax.errors import UserError
from mnemonics_jax.package import NUMERICS
from mnemonics_jax.runs import BusyError, layout
from mnemonics_jax.runs import claim as claim_lib
from mnemonics_jax.runs.claim import claimed as claiming
from mnemonics_jax.runs.claim import locked
from mnemonics_jax.settings import resolve

ROOT = Path(__file__).parents[2]
SETTINGS = {"epochs": 2, "memory": "per_class:5", "data": "here"}


def claim(workdir, settings, checksum):
  """Enters the directory and leaves it again."""
  with claiming(workdir, settings, checksum) as changes:
    return changes


@pytest.fixture
def claimed(tmp_path):
  assert claim(tmp_path / "out", SETTINGS, 17) is None
  return tmp_path / "out"


def test_a_new_directory_tells_what_is_run_in_it(tmp_path, monkeypatch):
  monkeypatch.setattr(sys, "argv", ["experiment", "--method=bic"])
  claimed = tmp_path / "out"
  claim(claimed, SETTINGS, 17)
  config = json.loads((claimed / "config.json").read_text())
  assert config["settings"] == SETTINGS and config["data"] == 17
  assert config["environment"]["packages"]["jax"]
  assert config["command"].endswith("--method=bic")
  names = sorted(path.name for path in claimed.iterdir())
  assert names == ["config.json", "lock"]


def test_the_same_run_may_enter_again(claimed):
  before = (claimed / "config.json").read_bytes()
  assert claim(claimed, SETTINGS, 17) is None
  # The same data may lie elsewhere now.
  assert claim(claimed, SETTINGS | {"data": "there"}, 17) is None
  assert (claimed / "config.json").read_bytes() == before


@pytest.mark.parametrize(
  "change, problem",
  [
    ({"epochs": 3}, r"other settings: epochs \(2 there, 3 now\)"),
    ({"dtype": "bfloat16"}, r"dtype \(None there, bfloat16 now\)"),
    (
      {"epochs": 3, "memory": "total:9"},
      r"epochs \(2 there, 3 now\), memory \(per_class:5 there, total:9 now\)",
    ),
  ],
)
def test_other_settings_are_refused(claimed, change, problem):
  before = (claimed / "config.json").read_bytes()
  with pytest.raises(UserError, match=problem) as error:
    claim(claimed, SETTINGS | change, 17)
  assert error.value.field == "workdir"
  assert (claimed / "config.json").read_bytes() == before


def test_a_run_of_before_a_setting_existed_goes_on(tmp_path):
  """With the default, which is what it did."""
  settings = resolve("digits", "short", {}).identity()
  older = {k: v for k, v in settings.items() if k not in ("rehearsal", "dtype")}
  assert claim(tmp_path / "out", older, 17) is None
  assert claim(tmp_path / "out", settings | {"rehearsal": "once"}, 17) is None
  with pytest.raises(
    UserError, match=r"rehearsal \(once there, balanced now\)"
  ):
    claim(tmp_path / "out", settings | {"rehearsal": "balanced"}, 17)


def test_a_run_of_the_library_of_before_a_field_existed_goes_on(workdir):
  config = layout.read_config(workdir)
  for fields, name in (
    (config["config"]["fields"], "rehearsal"),
    (config["config"]["fields"]["train"]["fields"], "curve"),
  ):
    del fields[name]
  del config["settings"]["rehearsal"], config["settings"]["train.curve"]
  layout.write_config(workdir, config)
  # Checkpoints are of the run that this file describes.
  for manifest in workdir.glob("seed_0/*/phase_*/manifest.json"):
    content = json.loads(manifest.read_text())
    content["place"]["run"] = claim_lib.run_name(config)
    manifest.write_text(json.dumps(content))
  cosine = dataclasses.replace(interrupted.SCHEDULE, curve="cosine")
  problem = r"settings: train\.curve \(steps there, cosine now\)"
  with pytest.raises(UserError, match=problem):
    interrupted.run(workdir, train=cosine)
  interrupted.run(workdir)


def test_other_data_are_refused(claimed):
  with pytest.raises(UserError, match="other data, though of the same name"):
    claim(claimed, SETTINGS, 18)


def test_numbers_of_another_version_are_not_continued(claimed, monkeypatch):
  config = json.loads((claimed / "config.json").read_text())
  assert config["numerics"] == NUMERICS
  monkeypatch.setattr(claim_lib, "NUMERICS", NUMERICS + 1)
  problem = "belongs to a run with numbers that this version would not make"
  with pytest.raises(UserError, match=problem):
    claim(claimed, SETTINGS, 17)
  # Nor are those from before they were counted.
  monkeypatch.undo()
  del config["numerics"]
  (claimed / "config.json").write_text(json.dumps(config))
  with pytest.raises(UserError, match=problem):
    claim(claimed, SETTINGS, 17)


def test_what_is_no_run_is_refused_and_left_alone(tmp_path):
  (tmp_path / "thesis.tex").write_text("precious")
  with pytest.raises(UserError, match="is not a run of this program"):
    claim(tmp_path, SETTINGS, 17)
  with pytest.raises(UserError, match=r"cannot be used|is not a run"):
    claim(tmp_path / "thesis.tex", SETTINGS, 17)
  with pytest.raises(UserError, match="cannot be used"):
    claim(tmp_path / "thesis.tex" / "below", SETTINGS, 17)
  assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


def test_of_two_first_starts_one_is_refused_and_leaves_nothing(tmp_path):
  with claiming(tmp_path / "out", SETTINGS, 17):
    before = layout.config_path(tmp_path / "out").read_bytes()
    with pytest.raises(BusyError):
      claim(tmp_path / "out", SETTINGS, 17)
    assert layout.config_path(tmp_path / "out").read_bytes() == before


_RACE = """
import sys, time
from pathlib import Path
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs.claim import claimed
me = sys.argv[1]
print("ready", flush=True)
for round in range(20):
  start = float(sys.stdin.readline())
  while time.time() < start: pass
  try:
    with claimed(Path(f"out{round}"), {"of": me}, 17):
      print("mine", flush=True)
      sys.stdin.readline()
  except UserError as error:
    print(f"refused {type(error).__name__}", flush=True)
    sys.stdin.readline()
"""


def test_of_two_that_start_at_once_one_is_refused_every_time(tmp_path):
  """Twenty times, from a barrier, each with settings of its own."""
  environment = os.environ | {"PYTHONPATH": str(ROOT)}
  racers = [
    subprocess.Popen(
      [sys.executable, "-c", _RACE, name],
      cwd=tmp_path,
      env=environment,
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
    )
    for name in ("one", "other")
  ]

  def tell(text):
    for racer in racers:
      racer.stdin.write(f"{text}\n")
      racer.stdin.flush()

  winners = []
  try:
    for racer in racers:
      assert racer.stdout.readline() == "ready\n"
    for number in range(20):
      tell(time.time() + 0.02)
      answers = [racer.stdout.readline().strip() for racer in racers]
      # Busy, or with other settings if the winner had written them by then.
      refused = {"refused BusyError", "refused UserError"}
      assert answers.count("mine") == 1 and len(refused & {*answers}) == 1
      winner = ("one", "other")[answers.index("mine")]
      workdir = tmp_path / f"out{number}"
      # Nothing of the loser remains.
      assert layout.read_config(workdir)["settings"] == {"of": winner}
      there = sorted(path.name for path in workdir.iterdir())
      assert there == ["config.json", "lock"]
      pid = racers[answers.index("mine")].pid
      assert f"process {pid} " in layout.lock_path(workdir).read_text()
      winners.append(winner)
      tell("next")
  finally:
    for racer in racers:
      racer.kill()
      racer.communicate()
  assert len(winners) == 20


def test_the_directory_is_locked_before_it_is_claimed(tmp_path):
  """The first has not written config.json yet when the second arrives."""
  (tmp_path / "out").mkdir()
  with locked(tmp_path / "out"), pytest.raises(BusyError):
    claim(tmp_path / "out", SETTINGS, 17)
  assert not layout.config_path(tmp_path / "out").exists()


def test_a_kill_before_the_first_file_locks_nobody_out(tmp_path):
  (tmp_path / "config.json.1.draft").write_text("{")
  assert claim(tmp_path, SETTINGS, 17) is None
  (tmp_path / "other").mkdir()
  (tmp_path / "other" / "results.json.1.draft").write_text("{")
  with pytest.raises(UserError, match="is not a run of this program"):
    claim(tmp_path / "other", SETTINGS, 17)


def test_other_packages_are_told(claimed):
  path = claimed / "config.json"
  config = json.loads(path.read_text())
  config["environment"]["packages"]["jax"] = "0.0.1"
  path.write_text(json.dumps(config))
  assert "was 0.0.1: last digits may differ." in (
    claim(claimed, SETTINGS, 17) or ""
  )


def test_a_run_names_the_fields_that_differ(workdir):
  longer = dataclasses.replace(interrupted.SCHEDULE, epochs=3)
  with pytest.raises(UserError, match=r"train.epochs \(2 there, 3 now\)"):
    interrupted.run(workdir, train=longer)


def test_a_run_knows_its_data(workdir, monkeypatch):
  other = tiny.dataset(classes=4, seed=1)
  monkeypatch.setattr(tiny, "dataset", lambda **_: other)
  with pytest.raises(UserError, match="other data"):
    interrupted.run(workdir)


def test_tuples_are_what_they_become_on_disk(tmp_path):
  settings = {"epochs": (1, 2)}
  assert claim(tmp_path / "out", settings, 17) is None
  assert claim(tmp_path / "out", settings, 17) is None


ROOT = Path(__file__).parents[2]
HOLD = """
import pathlib, sys
from mnemonics_jax.runs.claim import locked
with locked(pathlib.Path(sys.argv[1])):
  print("locked", flush=True)
  sys.stdin.read()
"""


def test_the_second_is_told_of_the_first(tmp_path):
  with (
    locked(tmp_path),
    pytest.raises(BusyError, match=f"is in use by process {os.getpid()} on"),
    locked(tmp_path),
  ):
    pytest.fail("two at a time")
  with locked(tmp_path):
    pass


def test_a_killed_process_locks_nobody_out(tmp_path):
  with subprocess.Popen(
    [sys.executable, "-c", HOLD, str(tmp_path)],
    cwd=ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  ) as other:
    assert other.stdout is not None
    assert other.stdout.readline() == "locked\n"
    busy = pytest.raises(BusyError, match=f"process {other.pid} on")
    with busy, locked(tmp_path):
      pytest.fail("two at a time")
    other.kill()
  with locked(tmp_path):
    text = (tmp_path / "lock").read_text()
    assert text.startswith(f"process {os.getpid()} on ")


def test_whoever_has_the_lock_clears_the_drafts_of_the_killed(tmp_path):
  (tmp_path / "seed_0").mkdir()
  draft = tmp_path / "seed_0" / "result.json.1-0123abcd.draft"
  mine = [tmp_path / "notes.draft", tmp_path / "thesis.2024.draft"]
  for path in (draft, *mine):
    path.write_text("")
  with locked(tmp_path):
    assert all(path.exists() for path in mine) and not draft.exists()


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_what_only_has_the_name_of_a_lock_is_left_alone(tmp_path, kind):
  """Of a work directory, and of one that is to be made."""
  thesis = tmp_path / "thesis.txt"
  for lock, hold in [
    (tmp_path / "out" / "lock", locked),
    (tmp_path / ".out.mnemonics_jax.lock", claim_lib.reserved),
  ]:
    lock.parent.mkdir(exist_ok=True)
    thesis.write_text("years")
    if kind == "link":
      lock.symlink_to(thesis)
    elif kind == "directory":
      lock.mkdir()
    else:
      lock.write_text("years")
    with (
      pytest.raises(UserError, match="is not a lock"),
      hold(tmp_path / "out"),
    ):
      pass
    assert thesis.read_text() == "years"
    assert lock.exists() and (kind != "file" or lock.read_text() == "years")


def test_a_run_does_not_touch_a_directory_that_is_in_use(workdir):
  before = (workdir / "metrics.jsonl").read_bytes()
  with locked(workdir), pytest.raises(BusyError):
    interrupted.run(workdir)
  assert (workdir / "metrics.jsonl").read_bytes() == before
