"""Where a command computes, and what the process keeps."""

import contextlib
import os
from pathlib import Path
import platform
import subprocess
import sys
import zlib

import jax
from jax.experimental.compilation_cache import compilation_cache
import jax.numpy as jnp
import pytest
from support import command

from experiments import flags as flags_lib
from experiments import launch
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import mesh, processes
from mnemonics_jax.runs import Stopped

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def caches(tmp_path, monkeypatch):
  """Programs that are compiled here are not the user's."""
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@contextlib.contextmanager
def computing(**flags):
  values = command.parsed(flags_lib.of_run("digits"), **flags)
  with launch.computing(values):
    yield


def test_all_devices_are_the_default():
  with computing():
    assert mesh.device_count() == jax.device_count()


@pytest.mark.parametrize(
  "flags, problem",
  [
    (dict(devices="many"), "`devices=many` is neither all nor"),
    (dict(devices="0"), "`devices=0` is neither all nor"),
    (dict(devices="99"), r"`devices=99` is more than the \d+ of this machine"),
    (dict(devices="1", coordinator="auto"), "`devices=1` has no effect in"),
    (dict(process_id="0"), "`process_id=0` has no effect without"),
    (dict(coordinator="nowhere"), "`coordinator=nowhere` is neither auto nor"),
  ],
)
def test_mistakes_are_told(flags, problem):
  with pytest.raises(UserError, match=problem), computing(**flags):
    pytest.fail("computed")


def test_processes_are_connected_as_the_flags_say(monkeypatch):
  calls = []
  connect = lambda *address: calls.append(address) or False
  monkeypatch.setattr(processes, "connect", connect)
  with computing():
    pass
  with computing(coordinator="host:99", num_processes="2", process_id="1"):
    pass
  assert calls == [(None, None, None), ("host:99", 2, 1)]


def test_they_part_when_the_run_has_ended(monkeypatch):
  shut = []
  monkeypatch.setattr(processes, "connect", lambda *_: True)
  monkeypatch.setattr(jax.distributed, "shutdown", lambda: shut.append(1))
  with computing():
    assert not shut
  assert shut


def test_all_but_the_first_process_are_silent(monkeypatch, capsys):
  monkeypatch.setattr(jax, "process_index", lambda: 1)
  with computing():
    print("twice")
    print("twice", file=sys.stderr)
  print("once")
  assert capsys.readouterr() == ("once\n", "")


@pytest.mark.parametrize(
  "error, code",
  [
    (UserError("memory", "too small", "take more"), 2),
    (KeyboardInterrupt(), 130),
    (RuntimeError("a mistake of ours"), 1),
    (Stopped(143), None),  # All processes have agreed on it.
  ],
)
def test_a_process_that_fails_does_not_wait_for_the_others(
  monkeypatch, error, code
):
  codes = []
  monkeypatch.setattr(processes, "leave_at_exit", codes.append)
  with pytest.raises(type(error)), computing():
    raise error
  assert not codes  # It was alone.
  monkeypatch.setattr(jax, "process_count", lambda: 2)
  with pytest.raises(type(error)), computing():
    raise error
  assert codes == ([] if code is None else [code])


@pytest.mark.parametrize("asked, cores", [(2, 4), (3, 2)])
def test_cores_of_a_cpu_become_devices(asked, cores):
  code = f"""
import os
os.sched_getaffinity = lambda _: range({cores})
from experiments import flags as flags_lib
from experiments import digits, launch
from mnemonics_jax.parallel import mesh
digits.FLAGS(["test", "--devices={asked}"])
with launch.computing(digits.FLAGS):
  print(mesh.device_count())
"""
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
  )
  if asked <= cores:
    assert done.stdout.strip() == str(asked), done.stderr
  else:
    assert "`devices=3` is more than the 2 of this machine" in done.stderr


# Memory: a large block that is freed and asked for again costs no new pages.

COUNT = """
import ctypes, resource, sys
from experiments import launch

if sys.argv[1] == "keep":
  print(launch.keep_freed_memory())
libc = ctypes.CDLL(None)
libc.malloc.restype = libc.memset.restype = ctypes.c_void_p
libc.malloc.argtypes = [ctypes.c_size_t]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt

def use():
  block = libc.malloc(1 << 26)
  libc.memset(block, 1, 1 << 26)
  libc.free(block)

use()
before = faults()
use()
print(faults() - before)
"""


def count(how, **environment):
  """What it answers, and pages that the second use of 64 MiB was given."""
  clean = {k: v for k, v in os.environ.items() if not k.startswith("MALLOC_")}
  done = subprocess.run(
    [sys.executable, "-c", COUNT, how],
    env=clean | {"PYTHONPATH": str(ROOT)} | environment,
    capture_output=True,
    text=True,
    check=True,
  )
  *answers, pages = done.stdout.split()
  return answers, int(pages)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="not glibc")
def test_pages_are_kept():
  _, before = count("leave")
  answers, after = count("keep")
  assert answers == ["True"] and after < 100
  huge = Path("/sys/kernel/mm/transparent_hugepage/enabled")
  if not (huge.exists() and "[always]" in huge.read_text()):
    assert before > 1000  # Of 16,384.


def test_who_has_chosen_is_left_alone():
  answers, _ = count("keep", MALLOC_ARENA_MAX="2")
  assert answers == ["False"]
  answers, _ = count("keep", GLIBC_TUNABLES="glibc.malloc.arena_max=2")
  assert answers == ["False"]


# Compiled programs are found again, and a missing cache stops nobody.

_CHOSEN = "jax_compilation_cache_dir"


@pytest.fixture
def nothing_chosen():
  before = getattr(jax.config, _CHOSEN)
  jax.config.update(_CHOSEN, None)
  compilation_cache.reset_cache()
  yield
  jax.config.update(_CHOSEN, before)
  compilation_cache.reset_cache()


def _programs(test):
  """Of compiled programs: none are kept yet, and JAX warns of nothing."""
  strict = pytest.mark.filterwarnings("error")
  return pytest.mark.usefixtures("nothing_chosen")(strict(test))


def _compile():
  """Events of compiling one program anew."""
  events, listener = [], lambda name, **_: events.append(name)
  jax.monitoring.register_event_listener(listener)
  try:
    with launch.programs_kept():
      jax.clear_caches()
      jax.jit(lambda x: jnp.sin(x) * 3)(jnp.ones(5)).block_until_ready()
  finally:
    jax.monitoring.unregister_event_listener(listener)
  return events


@_programs
def test_the_second_start_finds_what_the_first_compiled(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  hit = "/jax/compilation_cache/cache_hits"
  least = jax.config.jax_persistent_cache_min_compile_time_secs
  assert hit not in _compile()  # It compiles in no time, and is kept.
  assert any((tmp_path / "mnemonics_jax/xla").iterdir())
  assert hit in _compile()
  # Afterwards nothing is kept.
  assert getattr(jax.config, _CHOSEN) is None
  assert jax.config.jax_persistent_cache_min_compile_time_secs == least


@_programs
def test_a_directory_that_was_chosen_is_left_alone(tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "unused"))
  jax.config.update(_CHOSEN, str(tmp_path / "chosen"))
  _compile()
  assert getattr(jax.config, _CHOSEN) == str(tmp_path / "chosen")
  assert not (tmp_path / "unused").exists()


@_programs
def test_without_a_place_everything_is_compiled(tmp_path, monkeypatch):
  (tmp_path / "file").write_text("")
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
  _compile()
  assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("damage", ["truncated", "empty", "flipped", "other"])
@_programs
def test_a_damaged_entry_is_replaced(tmp_path, monkeypatch, capfd, damage):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  hit = "/jax/compilation_cache/cache_hits"
  _compile()
  entries = sorted((tmp_path / "mnemonics_jax/xla").glob("*-cache"))
  whole = {path: path.read_bytes() for path in entries}
  for path, content in whole.items():
    flipped = bytearray(content)
    flipped[len(flipped) // 2] ^= 1
    path.write_bytes(
      {
        "truncated": content[: len(content) // 2],
        "empty": b"",
        "flipped": bytes(flipped),
        "other": zlib.compress(b"not a program at all"),
      }[damage]
    )
  assert hit not in _compile()
  assert capfd.readouterr() == ("", "")
  assert all(path.stat().st_size > 0 for path in entries)
  assert hit in _compile()


@_programs
def test_a_directory_of_others_is_not_used(tmp_path, monkeypatch, capsys):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
  hit, path = "/jax/compilation_cache/cache_hits", tmp_path / "mnemonics_jax"
  _compile()
  assert [oct(p.stat().st_mode & 0o777) for p in (path, path / "xla")] == [
    *("0o700", "0o700")
  ]
  capsys.readouterr()
  for folder in (path, path / "xla"):
    folder.chmod(0o777)
    before = sorted(path.rglob("*"))
    assert hit not in _compile()
    assert sorted(path.rglob("*")) == before
    told = capsys.readouterr().err
    assert told.startswith(f"Note: others may write to {folder}, so compiled")
    assert told.endswith("; remove it, and one of your own is made.\n")
    assert told.count("\n") == 1
    folder.chmod(0o700)
  someone_else = os.geteuid() + 1
  monkeypatch.setattr(os, "geteuid", lambda: someone_else)
  assert hit not in _compile()
  assert "belongs to another user" in capsys.readouterr().err
