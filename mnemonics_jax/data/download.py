"""Fetches CIFAR-100 through TensorFlow Datasets, in a process of its own.

TensorFlow would reserve the accelerator's memory if it were imported here, and
a process can be ended when the network stalls.
"""

import contextlib
import importlib.util
from pathlib import Path
import subprocess
import sys
import tempfile
import time

from mnemonics_jax.data.cifar_pickle import URL
from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.progress import DataReport, Report, ignore

_ARCHIVE_BYTES = 168_513_733
_STALLED_SECONDS = 180
_PROBE = """
import sys, urllib.request
urllib.request.urlopen(sys.argv[1], timeout=10).close()
"""
_FETCH = """
import sys
import tensorflow_datasets as tfds
tfds.builder(
    "cifar100", data_dir=sys.argv[1], file_format="array_record"
).download_and_prepare()
"""


def cifar100(data_dir: Path, report: Report = ignore) -> None:
  """Downloads and prepares `data_dir/cifar100` as array_record files."""
  if importlib.util.find_spec("tensorflow") is None:
    raise DataError(
      "download",
      "`download` needs TensorFlow",
      "pip install -e '.[tf]'. Without it, put"
      f" {URL} into {data_dir} and leave out `download`",
    )
  if not _reachable(URL):
    raise DataError(
      "download",
      f"`download`: {URL} cannot be reached from this machine",
      f"check the network or proxy, or copy that file into {data_dir} by other"
      " means",
    )
  with tempfile.TemporaryFile() as log:
    process = subprocess.Popen(
      [sys.executable, "-c", _FETCH, str(data_dir)],
      stdout=log,
      stderr=log,
    )
    try:
      _watch(process, data_dir, report)
    finally:
      process.kill()
      process.wait()
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
  if process.returncode:
    reason = lines[-1] if lines else "it stalled"
    raise DataError(
      "download",
      f"`download`: TensorFlow Datasets could not prepare {data_dir} ({reason})",
      f"put {URL} there instead and leave out `download`",
    )


def _reachable(url: str) -> bool:
  # A name server that does not answer blocks without regard to timeouts, hence
  # the process.
  command = [sys.executable, "-c", _PROBE, url]
  with contextlib.suppress(subprocess.TimeoutExpired):
    done = subprocess.run(command, capture_output=True, timeout=15)
    return done.returncode == 0
  return False


def _watch(process: subprocess.Popen, data_dir: Path, report: Report) -> None:
  """Returns when the process has ended or has written nothing for long."""
  size, since = -1, time.monotonic()
  while process.poll() is None and time.monotonic() - since < _STALLED_SECONDS:
    written = 0
    for path in data_dir.glob("**/*"):
      with contextlib.suppress(OSError):
        written += path.stat().st_size
    if written != size:
      size, since = written, time.monotonic()
      report(DataReport(min(size, _ARCHIVE_BYTES), _ARCHIVE_BYTES))
    time.sleep(0.5)
