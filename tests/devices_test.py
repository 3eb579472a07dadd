"""Many devices: virtual ones in a process of their own, and two processes."""

import json
import os
from pathlib import Path
import socket
import subprocess
import sys

import numpy as np
import pytest

from experiments.settings import UserError, _check_shares

_ROOT = Path(__file__).parents[1]


def test_eight_virtual_devices_compute_what_one_does():
  flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
  done = subprocess.run(
    [sys.executable, "-m", "pytest", "-q", "tests/eight_devices.py"],
    cwd=_ROOT,
    env=os.environ | {"XLA_FLAGS": flags},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout


def test_a_batch_that_devices_cannot_share_is_refused():
  _check_shares(64, 8)
  with pytest.raises(UserError, match=r"--batch_size=100 .* --devices=5\."):
    _check_shares(100, 8)


def _digits(workdir, *flags):
  command = [sys.executable, "-m", "experiments.digits", "--preset=smoke"]
  small = ["--images_per_class=40", "--phases=1", "--meta_epochs=2", "--adjust"]
  return subprocess.Popen(
    [*command, *small, f"--workdir={workdir}", "--notensorboard", *flags],
    cwd=workdir.parent,
    env=os.environ | {"PYTHONPATH": str(_ROOT)},
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _epochs(workdir):
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  records = [json.loads(line) for line in lines]
  return [r for r in records if r["kind"] == "epoch"]


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path):
  alone, together = tmp_path / "alone", tmp_path / "together"
  single = _digits(alone)
  text = single.communicate()
  assert single.returncode == 0, text
  with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
  pair = [
    _digits(
      together,
      f"--base_models={tmp_path / 'models'}",
      f"--coordinator=localhost:{port}",
      "--num_processes=2",
      f"--process_id={i}",
    )
    for i in range(2)
  ]
  texts = [process.communicate() for process in pair]
  assert [process.returncode for process in pair] == [0, 0], texts
  # Gloo says that it has found the other; the second process says no more.
  assert "Report: " in texts[0][0] and "Learning" not in texts[1][0]
  config = json.loads((together / "config.json").read_text())
  assert config["environment"]["processes"] == 2
  one, two = _epochs(alone), _epochs(together)
  assert [(r["phase"], r["stage"]) for r in one] == [
    (r["phase"], r["stage"]) for r in two
  ]
  first = [r["stage"] for r in one].index("exemplars")
  # Rounding grows from step to step.
  for a, b in zip(one[:first], two[:first], strict=True):
    np.testing.assert_allclose(a["loss"], b["loss"], rtol=1e-4)
  np.testing.assert_allclose(one[-1]["loss"], two[-1]["loss"], rtol=0.1)
