"""Full, failing and read-only disks end a run, and spare what is saved."""

import contextlib
import errno
import os
from pathlib import Path
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
from support import interrupted

from mnemonics_jax.errors import DiskError
from mnemonics_jax.runs import Policy, artifact

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small_disk(tmp_path):
  """A file system of 8 MB, where the tests may make one."""
  disk = tmp_path / "disk"
  disk.mkdir()
  mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
  if subprocess.run(mount, capture_output=True).returncode:
    pytest.skip("mounting a small file system needs root")
  yield disk
  subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_ends_the_run_and_spares_what_is_saved(
  small_disk, halfway, whole, capfd
):
  workdir = shutil.copytree(halfway, small_disk / "out")
  good = interrupted.checkpoints(workdir)
  log = (workdir / "metrics.jsonl").read_bytes()
  ballast = small_disk / "ballast"
  with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
    while True:
      file.write(bytes(4096))
  with pytest.raises((DiskError, OSError), match=r"No space left on device"):
    interrupted.run(workdir, tensorboard=True)
  assert capfd.readouterr().err == ""  # No thread adds to it.
  assert interrupted.checkpoints(workdir) == good
  assert (workdir / "metrics.jsonl").read_bytes().startswith(log)
  ballast.unlink()
  interrupted.run(workdir, Policy(1e9, keep=1))
  assert interrupted.files(workdir)["results"] == whole()["results"]


def test_a_read_only_disk_ends_the_run(small_disk, halfway):
  workdir = shutil.copytree(halfway, small_disk / "out")
  remount = lambda mode: subprocess.run(
    ["mount", "-o", f"remount,{mode}", str(small_disk)], check=True
  )
  remount("ro")
  try:
    with pytest.raises(DiskError, match=r"Read-only file system"):
      interrupted.run(workdir)
  finally:
    remount("rw")


def test_too_little_room_for_a_checkpoint_is_one_sentence(
  small_disk, capfd, monkeypatch
):
  """And Orbax is not asked to try."""
  monkeypatch.setattr(artifact, "_write_arrays", None)
  _run_out_of_room(small_disk, capfd)


# Orbax's own tasks may be collected after their loop has closed, and rarely its
# threads end the whole process.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_room_that_others_take_while_orbax_writes(
  small_disk, capfd, monkeypatch
):
  """Wherever its threads are when it runs out."""
  monkeypatch.setattr(artifact, "_check_room", lambda *_: None)
  _run_out_of_room(small_disk, capfd)


def _run_out_of_room(small_disk, capfd):
  ballast = small_disk / "ballast"
  random = np.random.default_rng(0).random
  tree = {f"{i}": random(2000) for i in range(20)}
  for room in range(16, 300, 64):  # Kilobytes; the checkpoint has 300.
    ballast.write_bytes(bytes(8 * 2**20 - room * 2**10))
    with pytest.raises(
      OSError, match=r"^\[Errno 28\] No space left on device$"
    ):
      artifact.save(small_disk / "saved", tree)
    assert not (small_disk / "saved").exists()
    ballast.unlink()
  assert capfd.readouterr() == ("", "")


_TOO_FEW = """
import errno, os, pathlib, resource
import numpy as np
from mnemonics_jax.errors import remedy
from mnemonics_jax.runs import artifact
# As many as a model has: some are still written when one has failed.
tree = {str(i): np.full((40, 40), 1.0 * i) for i in range(30)}
artifact.save(pathlib.Path("before"), tree)
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
used = {int(name) for name in os.listdir("/proc/self/fd")}
free = [number for number in range(soft) if number not in used]
for turn, more in enumerate([*range(3, 10)] * 2):
  resource.setrlimit(resource.RLIMIT_NOFILE, (free[more], hard))
  try:
    artifact.save(pathlib.Path(f"{turn}"), tree)
    said = "saved"
  except OSError as error:
    said = remedy(error)
  finally:
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
  print(said, flush=True)
"""


def test_too_few_files_are_one_sentence(tmp_path):
  """In a process of its own: threads speak past what pytest listens to."""
  done = subprocess.run(
    [sys.executable, "-c", _TOO_FEW],
    cwd=tmp_path,
    env=os.environ | {"PYTHONPATH": str(ROOT)},
    capture_output=True,
    text=True,
  )
  assert (done.returncode, done.stderr) == (0, "")
  said = done.stdout.splitlines()
  refused = said.count("allow more open files (ulimit -n)")
  assert refused > 2 and refused + said.count("saved") == 14


@pytest.mark.parametrize(
  "error",
  [OSError(errno.ENOSPC, "No space left on device"), ValueError("RESOURCE")],
  ids=["system", "kernel"],
)
def test_a_failing_write_names_the_last_good_checkpoint(
  workdir, monkeypatch, error
):
  good = interrupted.checkpoints(workdir)

  def fail(*_, **__):
    raise error

  with monkeypatch.context() as patch:
    patch.setattr("orbax.checkpoint.Checkpointer.save", fail)
    with pytest.raises(DiskError, match=re.escape(str(good[-1]))):
      interrupted.run(workdir)
  assert interrupted.checkpoints(workdir) == good
