"""Many devices: virtual ones in a process of their own, and two processes."""

import importlib.util
import json
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys

from absl.testing import flagsaver
import data_files
import jax
import numpy as np
import pytest

from experiments import launch
from experiments.settings import UserError, _check_shares

_ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
  "which", ["not slow", pytest.param("slow", marks=pytest.mark.slow)]
)
def test_eight_virtual_devices_compute_what_one_does(which):
  flags = os.environ["XLA_FLAGS"] + " --xla_force_host_platform_device_count=8"
  done = subprocess.run(
    [sys.executable, "-m", "pytest", "-m", which, "tests/eight_devices.py"],
    cwd=_ROOT,
    env=os.environ | {"XLA_FLAGS": flags},
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stdout


def test_a_tpu_pod_is_found_without_a_flag(monkeypatch):
  calls = []
  monkeypatch.setattr(jax.distributed, "initialize", lambda: calls.append(1))
  assert not launch._connect() and not calls  # Tests run on a CPU.
  monkeypatch.setattr(launch, "_has_tpu", lambda: True)
  assert launch._connect() and calls


def test_a_tpu_that_is_no_part_of_a_pod_runs_alone(monkeypatch):
  def nothing_found():
    raise ValueError("coordinator_address should be defined.")

  monkeypatch.setattr(jax.distributed, "initialize", nothing_found)
  monkeypatch.setattr(launch, "_has_tpu", lambda: True)
  assert not launch._connect()
  with (
    flagsaver.flagsaver(coordinator="auto"),
    pytest.raises(UserError, match=r"--coordinator=auto: .* not find"),
  ):
    launch._connect()


def test_tpus_are_seen(tmp_path, monkeypatch):
  monkeypatch.setenv("JAX_PLATFORMS", "")
  monkeypatch.setattr(importlib.util, "find_spec", lambda _: "libtpu")
  assert not launch._has_tpu(tmp_path)
  (tmp_path / "accel0").touch()
  assert launch._has_tpu(tmp_path)
  monkeypatch.setenv("JAX_PLATFORMS", "cpu")
  assert not launch._has_tpu(tmp_path)


@pytest.mark.parametrize("asked, cores", [(2, 4), (3, 2)])
def test_cores_of_a_cpu_become_devices(asked, cores):
  code = f"""
import os
os.sched_getaffinity = lambda _: range({cores})
from experiments import launch
from mnemonics_jax import devices
launch.FLAGS(["test", "--devices={asked}"])
with launch.computing():
  print(devices.count())
"""
  done = subprocess.run(
    [sys.executable, "-c", code], cwd=_ROOT, capture_output=True, text=True
  )
  if asked <= cores:
    assert done.stdout.strip() == str(asked), done.stderr
  else:
    assert "--devices=3 is more than the 2 of this machine" in done.stderr


def test_a_batch_that_devices_cannot_share_is_refused():
  _check_shares(64, 8)
  with pytest.raises(UserError, match=r"--batch_size=100 .* --devices=5\."):
    _check_shares(100, 8)


_SMALL = ["--images_per_class=40", "--phases=1", "--meta_epochs=2"]
_DIGITS = ["experiments.digits", *_SMALL, "--adjust"]


def _start(command, workdir, *flags, devices=1, cache=None):
  count = f"--xla_force_host_platform_device_count={devices}"
  return subprocess.Popen(
    [
      *(sys.executable, "-m", *command, "--preset=smoke"),
      *(f"--workdir={workdir}", "--notensorboard", *flags),
    ],
    cwd=workdir.parent,
    env=os.environ
    | {"PYTHONPATH": str(_ROOT), "XLA_FLAGS": count}
    | ({"XDG_CACHE_HOME": str(cache)} if cache else {}),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _pair(command, workdir, *flags, own=("", ""), **options):
  """The same run in two processes; each may have a flag of its `own`."""
  with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
  where = [f"--coordinator=localhost:{port}", "--num_processes=2"]
  return [
    _start(
      [*command, *filter(None, [own[i]])],
      *(workdir, *where, f"--process_id={i}", *flags),
      **options,
    )
    for i in range(2)
  ]


def _ends(processes, code=0):
  texts = [process.communicate(timeout=600) for process in processes]
  assert [p.returncode for p in processes] == [code] * len(processes), texts
  return texts


def _epochs(workdir):
  """Losses by phase, stage and epoch."""
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  return {
    (r["phase"], r["stage"], r["epoch"]): r["loss"]
    for r in map(json.loads, lines)
    if r["kind"] == "epoch"
  }


@pytest.mark.slow
def test_two_processes_compute_what_one_does(tmp_path):
  alone, together = tmp_path / "alone", tmp_path / "together"
  _ends([_start(_DIGITS, alone, devices=2)])
  models = f"--base_models={tmp_path / 'models'}"
  texts = _ends(_pair(_DIGITS, together, models))
  # Gloo says that it has found the other; the second process says no more.
  assert "Report: " in texts[0][0] and "Learning" not in texts[1][0]
  config = json.loads((together / "config.json").read_text())
  assert config["environment"]["processes"] == 2
  one, two = _epochs(alone), _epochs(together)
  assert one.keys() == two.keys()
  for epoch, loss in one.items():
    np.testing.assert_allclose(loss, two[epoch], rtol=1e-5, err_msg=str(epoch))


@pytest.mark.slow
def test_two_processes_read_a_folder_together(tmp_path):
  """Both take half of the images, and have those of one process."""
  images, rng = tmp_path / "images", np.random.default_rng(0)
  for name in "abcd":
    for i in range(12):
      color = tuple(rng.integers(0, 256, 3).tolist())
      data_files.save_image(images / f"train/{name}/{i}.png", color)
  (images / "train/a/broken.png").write_bytes(b"no image")
  command = ["experiments.folder", f"--data={images}", "--base_classes=2"]
  command += ["--phases=2", "--exemplars=herding", "--finetune=none"]
  alone, together = tmp_path / "alone", tmp_path / "together"
  texts = _ends(_pair(command, together, cache=tmp_path / "cache of two"))
  assert "unreadable train/a/broken.png" in texts[0][0]
  _ends([_start(command, alone, devices=2, cache=tmp_path / "cache of one")])
  results = [(path / "results.json").read_text() for path in (alone, together)]
  assert results[0] == results[1]


@pytest.mark.slow
def test_what_one_process_lacks_ends_both(tmp_path):
  """They say so, and do not wait for each other until something times out."""
  data_files.write_folder(tmp_path / "one")
  command = ["experiments.folder", "--base_classes=1", "--phases=1"]
  pair = _pair(command, tmp_path / "out", own=["--data=one", "--data=none"])
  texts = _ends(pair, code=2)
  assert texts[0][1].count("--data=none does not exist") == 1
  assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_signal_to_one_process_stops_all_and_they_continue(tmp_path):
  whole, stopped = tmp_path / "whole", tmp_path / "stopped"
  _ends(_pair(_DIGITS, whole))
  often = "--checkpoint_every=0.1"
  pair = _pair(_DIGITS, stopped, often)
  for line in pair[0].stdout:
    if line.startswith("Checkpoint"):
      break
  pair[1].send_signal(signal.SIGTERM)
  texts = _ends(pair, code=143)
  assert "same command continues" in texts[0][1]
  texts = _ends(_pair(_DIGITS, stopped, often))
  assert "Continuing" in texts[0][0]
  results = [(path / "results.json").read_text() for path in (whole, stopped)]
  assert results[0] == results[1]
