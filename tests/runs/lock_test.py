"""One process at a time works in a directory."""

import os
from pathlib import Path
import subprocess
import sys

import pytest
from support import interrupted

from mnemonics_jax.runs import BusyError
from mnemonics_jax.runs.lock import locked

ROOT = Path(__file__).parents[2]
HOLD = """
import pathlib, sys
from mnemonics_jax.runs.lock import locked
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
  draft = tmp_path / "seed_0" / "result.json.1.draft"
  mine = tmp_path / "notes.draft"
  for path in (draft, mine):
    path.write_text("")
  with locked(tmp_path):
    assert mine.exists() and not draft.exists()


def test_a_run_does_not_touch_a_directory_that_is_in_use(workdir):
  before = (workdir / "metrics.jsonl").read_bytes()
  with locked(workdir), pytest.raises(BusyError):
    interrupted.run(workdir)
  assert (workdir / "metrics.jsonl").read_bytes() == before
