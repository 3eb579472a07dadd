"""Files are replaced as a whole or not at all; locks; where caches are."""

import os
from pathlib import Path
import stat
import subprocess
import sys

import pytest

from mnemonics_jax import files


def test_text_comes_back(tmp_path):
  path = tmp_path / "a.txt"
  for text in ("Θ₀", "shorter"):
    files.write_text(path, text)
    assert path.read_text(encoding="utf-8") == text
  assert list(tmp_path.iterdir()) == [path]


def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path):
  path = tmp_path / "a.txt"
  files.write_text(path, "old")
  with pytest.raises(OSError, match="full"), files.replacing(path) as file:
    file.write(b"ne")
    raise OSError("the disk is full")
  assert path.read_text() == "old"
  assert list(tmp_path.iterdir()) == [path]


def test_the_cache_is_where_systems_keep_caches(monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere")
  assert files.user_cache() == Path("/somewhere/mnemonics_jax")
  monkeypatch.setenv("HOME", "/home/me")
  for unset in ("", None):  # An empty variable counts as none.
    if unset is None:
      monkeypatch.delenv("XDG_CACHE_HOME")
    else:
      monkeypatch.setenv("XDG_CACHE_HOME", unset)
    expected = Path("/home/me/.cache/mnemonics_jax")
    assert files.user_cache() == expected


_HOLD = """
import sys
from pathlib import Path
from mnemonics_jax import files
with files.locked(Path(sys.argv[1])) as file:
  file.write("held by me")
  file.flush()
  print("ready", flush=True)
  sys.stdin.readline()
"""


def test_a_lock_keeps_others_out_and_ends_with_its_process(tmp_path):
  path = tmp_path / "lock"
  command = [sys.executable, "-c", _HOLD, str(path)]
  pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
  with subprocess.Popen(command, **pipes) as holder:
    assert holder.stdout.readline() == "ready\n"
    held = files.locked(path)
    with pytest.raises(BlockingIOError, match="held by me"), held:
      raise AssertionError("two hold it")
    holder.kill()
  with files.locked(path) as file:
    file.seek(0)
    assert file.read() == "held by me"


def test_a_private_directory_is_where_its_links_lead(tmp_path):
  """A link may be turned later; the path that was checked stays."""
  (tmp_path / "mine").mkdir()
  (tmp_path / "link").symlink_to(tmp_path / "mine")
  found = files.private(tmp_path / "link/native")
  assert found == (tmp_path / "mine/native").resolve()
  assert found.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("below", ["", "a", "a/b"])
def test_a_directory_below_one_of_others_is_not_private(tmp_path, below):
  """Who may write above can put another directory in its place."""
  common = tmp_path / "common"
  (common / below).mkdir(parents=True)
  for mode, problem in (
    (0o777, "others may write"), (0o770, "others may write"),
    (0o1777, None if below else "others may write"), (0o755, None),
  ):  # fmt: skip
    common.chmod(mode)
    if problem:
      with pytest.raises(files.NotPrivateError, match=f"{problem} to .*common"):
        files.private(common / below)
    else:
      assert files.private(common / below) == (common / below).resolve()


def test_owners_count_up_to_the_root(tmp_path, monkeypatch):
  """The users who own the directory and those above it could change it."""
  path = files.private(tmp_path / "mine/native")
  lstat = Path.lstat

  def owned(folder, by):
    def changed(self):
      status = list(lstat(self))
      if self == folder:
        status[stat.ST_UID] = by
      return os.stat_result(status)

    return changed

  root = os.stat("/").st_uid
  for folder, by, private in (
    (path.parent, root, True), (path.parent, 12345, False),
    (tmp_path.parent, 12345, False), (path, 12345, False),
  ):  # fmt: skip
    monkeypatch.setattr(Path, "lstat", owned(folder, by))
    if private:
      assert files.private(path) == path
    else:
      with pytest.raises(
        files.NotPrivateError, match=f"{folder} belongs to an"
      ):
        files.private(path)
