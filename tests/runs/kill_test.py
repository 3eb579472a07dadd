"""A run that is killed again and again ends like one that never was."""

import json
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import time

import pytest
from support import compilations, interrupted, library_run

ROOT = Path(__file__).parents[2]
FLAGS = (
  "--preset=smoke", "--phases=1", "--images_per_class=20", "--base_epochs=3",
  "--epochs=3", "--meta_epochs=1", "--adjust", "--finetune=all",
  "--finetune_epochs=2", "--checkpoint_every=0.1", "--notensorboard",
)  # fmt: skip


def _start(arguments: list[str], home: Path) -> subprocess.Popen:
  """Python, with one stream for all it says."""
  compilations.share_kernels(home / ".cache")
  return subprocess.Popen(
    [sys.executable, *arguments],
    cwd=home,
    env=os.environ
    | {
      "HOME": str(home),
      "PYTHONPATH": str(ROOT),
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


class Killer:
  """Starts one run again and again, and ends it in many ways.

  Args:
    home: directory of the user who does this.
    rng: decides when.
  """

  def __init__(self, home: Path, rng: random.Random):
    self._home, self._rng = home, rng
    self.workdir = home / "out"
    self.endings = dict.fromkeys(("start", "anywhere", "write", "asked"), 0)

  def start(self) -> subprocess.Popen:
    command = ["experiments.digits", *FLAGS, f"--workdir={self.workdir}"]
    return _start(["-m", *command], self._home)

  def finish(self) -> dict[str, object]:
    """Lets it run to its end; what it leaves."""
    with self.start() as process:
      output, _ = process.communicate(timeout=600)
      assert process.returncode == 0, output
    return interrupted.files(self.workdir)

  def end_once(self, ending: str, whole: dict[str, object]) -> None:
    """Starts the run and ends it; one that was faster must have left `whole`."""
    with self.start() as process:
      if ending == "start":
        time.sleep(self._rng.uniform(0, 3))
      else:
        # Training has begun with the first checkpoint. Few lines from there, so
        # that a run survives many of these.
        for line in process.stdout:
          if line.startswith(("Checkpoint", "Continuing")):
            break
        for _ in range(self._rng.randint(0, 3)):
          process.stdout.readline()
        time.sleep(self._rng.uniform(0, 0.3))
      if ending == "write":
        self._wait_for_a_write(process)
      if process.poll() is not None:
        assert process.returncode == 0, process.stdout.read()
        self.check(whole)
        self.workdir = self.workdir.with_name(f"{self.workdir.name}+")
        return
      ask = self._rng.choice([signal.SIGTERM, signal.SIGINT])
      process.send_signal(ask if ending == "asked" else signal.SIGKILL)
      output, _ = process.communicate(timeout=300)
      if ending == "asked" and process.returncode:
        assert process.returncode == 128 + ask, output
        assert "Stopped" in output and "same command continues" in output
        assert "Traceback" not in output
    self.endings[ending] += 1
    log = self.workdir / "metrics.jsonl"
    lines = log.read_text().splitlines() if log.exists() else []
    for line in lines[:-1]:  # The last may be cut; opening the log drops it.
      json.loads(line)

  def check(self, whole: dict[str, object]) -> None:
    """The run has left what it should, and every epoch once in the log."""
    assert interrupted.files(self.workdir) == whole
    log = (self.workdir / "metrics.jsonl").read_text().splitlines()
    epochs = [
      (record["phase"], record["stage"], record["epoch"])
      for record in map(json.loads, log)
      if record["kind"] == "epoch"
    ]
    assert len(epochs) == len(set(epochs)) == 3 + 3 + 1 + 1 + 2 + 2 + 2

  def _wait_for_a_write(self, process):
    drafts = (self.workdir / "seed_0" / "checkpoints").glob
    while process.poll() is None and not any(drafts(".*.draft/*")):
      time.sleep(0.001)


def _kill(times, home):
  killer = Killer(home, random.Random(times))
  whole = killer.finish()
  killer.workdir = home / "killed"
  kinds = ["anywhere", "write", "start", "asked"]
  while sum(killer.endings.values()) < times:
    kind = kinds[sum(killer.endings.values()) % len(kinds)]
    killer.end_once(kind, whole)
  killer.finish()
  killer.check(whole)
  print(killer.endings)


def test_a_kill_changes_nothing(tmp_path):
  _kill(1, tmp_path)


@pytest.mark.slow
def test_fifty_kills_change_nothing(tmp_path):
  _kill(50, tmp_path)


@pytest.mark.slow
def test_the_library_alone_survives_a_kill_and_reports(tmp_path):
  """No command is involved: `library_run` knows nothing of `experiments`."""
  start = lambda name: _start([library_run.__file__, name], tmp_path)
  with start("whole") as process:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
  with start("killed") as process:
    seen = []
    # In the middle of a stage of phase 1.
    while not seen or "in phase 1, stage exemplars" not in seen[-1]:
      seen.append(process.stdout.readline())
      assert seen[-1], "".join(seen)
    process.kill()
  assert process.returncode == -signal.SIGKILL
  killed = tmp_path / "killed"
  assert not (killed / "results.json").exists()
  with start("killed") as process:
    output, _ = process.communicate(timeout=600)
    assert process.returncode == 0, output
  assert output.startswith("Continuing seed 0 in phase 1, stage exemplars.")
  assert output.splitlines()[-1] == "killed/report.html"
  assert interrupted.files(killed) == interrupted.files(tmp_path / "whole")
  # Pages differ in what depends on the clock, pictures do not.
  pictures = lambda name: {
    path.name: path.read_bytes()
    for path in (tmp_path / name / "figures").glob("accuracy*")
  }
  assert pictures("killed") == pictures("whole") != {}
