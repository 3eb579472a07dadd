"""The library of kernels: built once, whole or not at all, never in the way."""

import os
from pathlib import Path
import stat
import subprocess
import sys
import time

import pytest

from mnemonics_jax.cpu_conv import build

ROOT = Path(__file__).parents[2]


@pytest.fixture
def directory(tmp_path):
  return tmp_path / "caches" / "native"


def test_it_is_built_once_and_private(compiler, directory):
  path, seconds = build.library(directory)
  assert path.read_text() == "library\n" and seconds > 0
  assert build.library(directory) == (path, 0.0)
  assert compiler.builds == 1
  assert stat.S_IMODE(directory.stat().st_mode) == 0o700
  assert list(directory.iterdir()) == [path]


def test_another_compiler_source_or_jaxlib_is_another_library(
  compiler, directory, tmp_path, monkeypatch
):
  paths = {build.library(directory)[0]}
  monkeypatch.setenv("VERSION", "2")  # Or another processor: a macro changes.
  paths.add(build.library(directory)[0])
  monkeypatch.setattr(build.jaxlib, "__version__", "99")
  paths.add(build.library(directory)[0])
  source = tmp_path / "conv.cc"
  source.write_text("other")
  monkeypatch.setattr(build, "SOURCE", source)
  paths.add(build.library(directory)[0])
  assert len(paths) == compiler.builds == 4


@pytest.mark.parametrize("damage", [b"", b"librarx\n", b"library\n\0"])
def test_a_damaged_library_is_built_again(compiler, directory, damage):
  path, _ = build.library(directory)
  path.write_bytes(damage)
  again, seconds = build.library(directory)
  assert again.read_text() == "library\n" and seconds > 0
  assert list(directory.iterdir()) == [again]


@pytest.mark.parametrize(
  "does, problem",
  [
    ("echo 'conv.cc:1: error: no headers' >&2; exit 1", "error: no headers"),
    ("exit 1", "failed: silently"),
    ("kill -9 $$", "failed: silently"),
  ],
)
def test_a_compiler_that_fails(compiler, directory, does, problem):
  compiler.does(does)
  with pytest.raises(build.BuildError, match=problem):
    build.library(directory)
  assert not list(directory.iterdir())


def test_a_compiler_that_hangs(compiler, directory, monkeypatch, tmp_path):
  # Its child would go on: it must end, too.
  compiler.does(f"(sleep 3; touch {tmp_path}/alive) & sleep 60")
  monkeypatch.setattr(build, "_BUILD_SECONDS", 0.5)
  began = time.monotonic()
  with pytest.raises(build.BuildError, match=r"took more than 0\.5 s"):
    build.library(directory)
  assert time.monotonic() - began < 2.5
  time.sleep(3.5 - (time.monotonic() - began))
  assert not (tmp_path / "alive").exists() and not list(directory.iterdir())


def test_no_compiler(directory, monkeypatch):
  monkeypatch.delenv("CXX", raising=False)
  monkeypatch.setenv("PATH", "/nowhere")
  with pytest.raises(build.BuildError, match=r"no C\+\+ compiler"):
    build.library(directory)
  assert not directory.exists()


def test_a_directory_that_others_write_to_is_not_used(compiler, directory):
  directory.mkdir(parents=True)
  directory.chmod(0o777)
  with pytest.raises(build.BuildError, match="not safe"):
    build.library(directory)
  assert compiler.builds == 0


def test_a_directory_that_cannot_be_made(compiler, tmp_path):
  (tmp_path / "file").touch()
  with pytest.raises(build.BuildError, match="cannot be used"):
    build.library(tmp_path / "file" / "native")


def test_drafts_of_the_killed_are_removed_after_a_day(compiler, directory):
  build.library(directory)
  old, new = directory / "old.tmp", directory / "new.tmp"
  for draft in (old, new):
    draft.mkdir()
  os.utime(old, (0, 0))
  for library in directory.glob("*.so"):
    library.unlink()
  build.library(directory)
  assert not old.exists() and new.exists()


BUILD = """
import sys
from pathlib import Path
from mnemonics_jax.cpu_conv import build
print(build.library(Path(sys.argv[1]))[0])
"""


def test_processes_that_build_at_the_same_time(compiler, directory):
  compiler.does("sleep 1")
  started = [
    subprocess.Popen(
      [sys.executable, "-c", BUILD, str(directory)],
      env=os.environ | {"PYTHONPATH": str(ROOT)},
      stdout=subprocess.PIPE,
      text=True,
    )
    for _ in range(2)
  ]
  printed = [process.communicate()[0].strip() for process in started]
  assert [process.returncode for process in started] == [0, 0]
  (path,) = directory.iterdir()
  assert printed == [str(path)] * 2 and path.read_text() == "library\n"
