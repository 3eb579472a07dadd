"""Flags that say where a run computes."""

import contextlib
from pathlib import Path
import subprocess
import sys

from absl.testing import flagsaver
import jax
import pytest

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
  with flagsaver.as_parsed(**flags), launch.computing():
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
from experiments import launch
from mnemonics_jax.parallel import mesh
launch.FLAGS(["test", "--devices={asked}"])
with launch.computing():
  print(mesh.device_count())
"""
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
  )
  if asked <= cores:
    assert done.stdout.strip() == str(asked), done.stderr
  else:
    assert "`devices=3` is more than the 2 of this machine" in done.stderr
