"""A run that is killed again and again ends like one that never was."""

import json
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

import interrupted
import pytest

ROOT = Path(__file__).parent.parent
FLAGS = (
  "--preset=smoke", "--phases=2", "--images_per_class=20", "--base_epochs=3",
  "--epochs=2", "--meta_epochs=2", "--adjust", "--finetune=all",
  "--finetune_epochs=2", "--checkpoint_every=0", "--notensorboard",
)  # fmt: skip


class Runs:
  """Starts the same run in a directory, again and again."""

  def __init__(self, home: Path):
    self._home = home
    self._env = os.environ | {
      "HOME": str(home),
      "PYTHONPATH": str(ROOT),
      # Starting again should not mean compiling again.
      "JAX_COMPILATION_CACHE_DIR": str(home / "xla"),
      "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }

  def start(self, workdir: Path) -> subprocess.Popen:
    return subprocess.Popen(
      [sys.executable, "-m", "experiments.digits", *FLAGS, f"--workdir={workdir}"],
      cwd=self._home,
      env=self._env,
      stdout=subprocess.PIPE,
      stderr=subprocess.STDOUT,
      text=True,
    )  # fmt: skip

  def finish(self, workdir: Path) -> tuple[str, float]:
    """What a run prints that is left alone, and how long it takes."""
    began = time.monotonic()
    process = self.start(workdir)
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
    return output, time.monotonic() - began


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  return Runs(tmp_path_factory.mktemp("home"))


@pytest.fixture(scope="module")
def whole(runs, tmp_path_factory):
  """A run that was left alone, and the time it takes once all is compiled."""
  home = tmp_path_factory.mktemp("whole")
  runs.finish(home / "first")
  _, seconds = runs.finish(home / "second")
  files = interrupted.files(home / "second")
  assert files == interrupted.files(home / "first")
  return files, seconds


def _wait_for_a_write(process, checkpoints):
  """Returns in the middle of writing a checkpoint."""
  while process.poll() is None:
    if any(checkpoints.glob("*.partial-*/*")):
      return
    time.sleep(0.001)


def _kill_often(runs, whole, workdir, kills, rng):
  files, seconds = whole
  checkpoints = workdir / "seed_0" / "checkpoints"
  killed = in_a_write = 0
  while killed < kills:
    process = runs.start(workdir)
    try:
      process.wait(rng.uniform(0, seconds))
    except subprocess.TimeoutExpired:
      if killed % 2:
        _wait_for_a_write(process, checkpoints)
    if process.poll() is not None:
      assert process.returncode == 0, process.stdout.read()
      assert interrupted.files(workdir) == files
      # It was faster; another one shall be killed the remaining times.
      workdir = workdir.with_name(workdir.name + "x")
      checkpoints = workdir / "seed_0" / "checkpoints"
      continue
    process.kill()
    process.communicate()
    killed += 1
    in_a_write += any(checkpoints.glob("*.partial-*"))
    log = workdir / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    for line in lines[:-1]:  # The last may be cut; opening the log drops it.
      json.loads(line)
  runs.finish(workdir)
  assert interrupted.files(workdir) == files
  records = [json.loads(x) for x in log.read_text().splitlines()]
  epochs = [
    (r["phase"], r["stage"], r["epoch"])
    for r in records
    if r["kind"] == "epoch"
  ]
  assert len(epochs) == len(set(epochs))
  return in_a_write


def test_ten_kills_change_nothing(runs, whole, tmp_path):
  assert _kill_often(runs, whole, tmp_path / "out", 10, random.Random(0)) >= 2


@pytest.mark.slow
def test_fifty_kills_change_nothing(runs, whole, tmp_path):
  assert _kill_often(runs, whole, tmp_path / "out", 50, random.Random(1)) >= 10


@pytest.mark.parametrize("ask", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_run_politely(runs, whole, tmp_path, ask):
  files, _ = whole
  process = runs.start(tmp_path / "out")
  while process.stdout.readline().find("train · epoch 1") < 0:
    assert process.poll() is None
  process.send_signal(ask)
  output, _ = process.communicate(timeout=120)
  assert process.returncode == 128 + ask, output
  assert "Traceback" not in output
  assert "Stopped" in output and "The same command continues" in output
  output, _ = runs.finish(tmp_path / "out")
  assert "Continuing seed 0 in phase" in output
  assert interrupted.files(tmp_path / "out") == files
