"""Processes that read: they change nothing, and end with whom they serve."""

import dataclasses
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest

from mnemonics_jax import data


def load(root, **options):
  return data.load("imagenet", root, image_size=16, **options)


def test_workers_end_with_the_data(prepared_imagenet):
  loaded = load(prepared_imagenet, workers=2)
  assert np.asarray(loaded.test_images).shape == (6, 16, 16, 3)
  started = psutil.Process().children()
  assert sum("data.workers" in " ".join(p.cmdline()) for p in started) == 2
  del loaded
  assert psutil.wait_procs(started, timeout=20)[1] == []


def test_what_a_worker_finds_wrong_is_one_sentence(prepared_imagenet, tmp_path):
  loaded = load(prepared_imagenet, workers=1)
  store = loaded.train_images.store
  wrong = store.table.copy()
  wrong["crc"][5] ^= 1
  broken = dataclasses.replace(store, table=wrong)
  with pytest.raises(
    data.DataError, match=r"image . of .*its checksum is wrong"
  ):
    broken.read(np.arange(12))
  # The worker goes on.
  assert broken.read(np.array([0, 1])).shape == (2, 16, 16, 3)


def test_a_worker_that_is_killed_is_told_of(prepared_imagenet):
  loaded = load(prepared_imagenet, workers=1)
  np.asarray(loaded.test_images[:1])
  (worker,) = psutil.Process().children()
  worker.kill()
  with pytest.raises(data.DataError, match=r"has ended \(exit code -9\)"):
    np.asarray(loaded.test_images[:1])


def test_workers_outlast_signals_and_end_with_their_parent(prepared_imagenet):
  """Ctrl-C reaches all processes; who learns finishes a step, and still reads."""
  code = (
    "import sys, time; import numpy as np; from mnemonics_jax import data\n"
    f"d = data.load('imagenet', {str(prepared_imagenet)!r}, image_size=16, workers=1)\n"
    "np.asarray(d.test_images); print('ready', flush=True); sys.stdin.readline()\n"
    "print(np.asarray(d.test_images).shape, flush=True); time.sleep(60)\n"
  )
  parent = subprocess.Popen(
    [sys.executable, "-c", code],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
  )  # fmt: skip
  with parent:
    assert parent.stdout.readline() == "ready\n"
    (worker,) = psutil.Process(parent.pid).children()
    for number in (signal.SIGINT, signal.SIGTERM):
      worker.send_signal(number)
    time.sleep(0.1)
    parent.stdin.write("\n")
    parent.stdin.flush()
    assert parent.stdout.readline() == "(6, 16, 16, 3)\n"
    parent.kill()
  assert psutil.wait_procs([worker], timeout=20)[1] == []
