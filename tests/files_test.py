"""Files are replaced as a whole or not at all; locks; where caches are."""

from pathlib import Path
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
