"""A directory is the old one or the new one, whatever ends a program."""

import errno
import fcntl
import multiprocessing
import os
from pathlib import Path
import shutil
import signal
import subprocess
import sys

import pytest

from mnemonics_jax import files
from mnemonics_jax.runs import drafts

ROOT = Path(__file__).parents[2]


def save(path, text):
  """Saves a directory of two files."""
  with drafts.drafting(path, replace=True) as draft:
    (draft / "one").write_text(text)
    (draft / "two").write_text(text)


def content(path):
  return (path / "one").read_text(), (path / "two").read_text()


_KILLED = """
import errno, os, shutil, sys
from pathlib import Path
from mnemonics_jax import files
from mnemonics_jax.runs import drafts

def no_exchange(*_):
  raise OSError(errno.EINVAL, "no flags here")

if sys.argv[1] == "renames":
  drafts._swap_names = no_exchange
count, last = 0, int(sys.argv[2])

def counted(function):
  def call(*args, **options):
    global count
    if count == last:
      os._exit(9)
    count += 1
    return function(*args, **options)
  return call

for name in ("fsync", "rename", "unlink", "rmdir", "mkdir"):
  setattr(os, name, counted(getattr(os, name)))
drafts._swap_names = counted(drafts._swap_names)
with drafts.drafting(Path("m"), replace=True) as draft:
  (draft / "one").write_text("new")
  (draft / "two").write_text("new")
"""


def mine(home):
  """What a user has beside a saved directory, under names that look alike."""
  for name in ("m.old", "m.new", "m.draft", ".m.draft", ".m.1-2.old"):
    (home / name).mkdir()
    (home / name / "thesis.txt").write_text("years")
  (home / ".m.1.draft").write_text("years")
  return sorted(path for path in home.rglob("*"))


@pytest.mark.parametrize("how", ["exchange", "renames"])
@pytest.mark.parametrize("before", [True, False])
def test_a_kill_at_any_step_leaves_one_of_both(tmp_path, how, before):
  steps = 0
  while True:
    home = tmp_path / str(steps)
    home.mkdir()
    others = mine(home)
    if before:
      save(home / "m", "old")
    done = subprocess.run(
      [sys.executable, "-c", _KILLED, how, str(steps)],
      cwd=home,
      env=os.environ | {"PYTHONPATH": str(ROOT)},
      stderr=subprocess.PIPE,
    )
    there = drafts.found(home / "m")
    if done.returncode == 0:
      break
    assert done.returncode == 9, done.stderr
    if before or there.exists():
      assert content(there) in [("old", "old"), ("new", "new")], steps
    # The next save cleans up after the killed one, and after nobody else.
    save(home / "m", "next")
    assert content(home / "m") == ("next", "next")
    rest = sorted(p for p in home.rglob("*") if home / "m" not in p.parents)
    assert rest == sorted([*others, home / "m"]), steps
    steps += 1
  assert content(there) == ("new", "new") and steps > 5


def test_what_an_interrupted_exchange_left_is_kept_if_the_next_save_fails(
  tmp_path,
):
  save(tmp_path / "m", "old")
  (tmp_path / "m").rename(tmp_path / ".m.17-0123abcd.old")
  draft = drafts.drafting(tmp_path / "m", replace=True)
  with pytest.raises(ZeroDivisionError), draft:
    raise ZeroDivisionError
  assert content(tmp_path / "m") == ("old", "old")
  assert os.listdir(tmp_path) == ["m"]


def test_a_save_that_fails_leaves_the_old_directory(tmp_path, monkeypatch):
  save(tmp_path / "m", "old")
  full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  for module, name in ((files, "sync"), (drafts, "_swap_names")):
    with monkeypatch.context() as patch, pytest.raises(OSError, match="space"):
      patch.setattr(module, name, lambda *_: (_ for _ in ()).throw(full))
      save(tmp_path / "m", "new")
    assert content(tmp_path / "m") == ("old", "old")
    assert os.listdir(tmp_path) == ["m"]


def _write_for_ever(path, ready):
  with drafts.drafting(path, replace=True) as draft:
    (draft / "one").write_text("other")
    ready.set()
    signal.pause()


def test_a_draft_stays_while_its_process_lives(tmp_path):
  context = multiprocessing.get_context("spawn")
  ready = context.Event()
  other = context.Process(target=_write_for_ever, args=(tmp_path / "m", ready))
  other.start()
  try:
    assert ready.wait(60)
    save(tmp_path / "m", "mine")
    (draft,) = tmp_path.glob(".*")
    assert (draft / "one").read_text() == "other"
  finally:
    other.kill()
    other.join()
  save(tmp_path / "m", "again")
  assert os.listdir(tmp_path) == ["m"]


def test_without_leave_nothing_is_replaced(tmp_path):
  save(tmp_path / "m", "old")
  drafting = drafts.drafting(tmp_path / "m")
  with pytest.raises(OSError, match=r"not empty|exists"), drafting as draft:
    (draft / "one").write_text("new")
  assert content(tmp_path / "m") == ("old", "old")
  shutil.rmtree(tmp_path / "m")
  (tmp_path / "m").mkdir()
  with drafts.drafting(tmp_path / "m") as draft:
    (draft / "one").write_text("new")
  assert os.listdir(tmp_path) == ["m"]


def test_a_lock_that_another_program_holds_does_not_stop_a_save(
  tmp_path, monkeypatch
):
  """Such as `flock DIRECTORY python train.py`."""
  monkeypatch.setattr(drafts, "_PATIENCE", 0.05)
  holder = os.open(tmp_path, os.O_RDONLY)
  fcntl.flock(holder, fcntl.LOCK_EX)
  try:
    with drafts.drafting(tmp_path / "m") as draft:
      (draft / "a").write_text("1")
  finally:
    os.close(holder)
  assert (tmp_path / "m" / "a").read_text() == "1"
