"""Full, failing and read-only disks end a run, and spare what is saved."""

import contextlib
import errno
import re
import shutil
import subprocess

import pytest
from support import interrupted

from mnemonics_jax.errors import DiskError
from mnemonics_jax.runs import Policy, checkpoint


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
  small_disk, halfway, whole
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
    patch.setattr(checkpoint.ocp.Checkpointer, "save", fail)
    with pytest.raises(DiskError, match=re.escape(str(good[-1]))):
      interrupted.run(workdir)
  assert interrupted.checkpoints(workdir) == good
