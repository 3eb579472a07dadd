"""Several processes: how they meet, and two that run digits together."""

import importlib.util
import json
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys

import jax
import numpy as np
import pytest
from support import compilations, data_files

from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import processes

_ROOT = Path(__file__).parents[2]


def test_one_process_agrees_with_itself(tmp_path):
  assert processes.all_equal(7) and processes.all_max(3) == 3
  gathered = processes.all_gather(np.array([1, 2]))
  assert gathered.tolist() == [[1, 2]]
  assert processes.private_directory(tmp_path) is tmp_path


@pytest.fixture
def joined(monkeypatch):
  """What JAX is asked to join, instead of joining it."""
  calls = []
  monkeypatch.setattr(
    jax.distributed, "initialize", lambda *args: calls.append(args)
  )
  return calls


def test_a_tpu_pod_is_found_without_being_asked_for(monkeypatch, joined):
  assert not processes.connect() and not joined  # Tests run on a CPU.
  monkeypatch.setattr(processes, "has_tpu", lambda: True)
  assert processes.connect() and joined == [()]


def test_an_address_is_passed_on(joined):
  assert processes.connect("localhost:9876", 2, 1)
  assert processes.connect("auto")
  assert joined == [("localhost:9876", 2, 1), ()]


def test_a_tpu_that_is_no_part_of_a_pod_runs_alone(monkeypatch):
  def nothing_found():
    raise ValueError("coordinator_address should be defined.")

  monkeypatch.setattr(jax.distributed, "initialize", nothing_found)
  monkeypatch.setattr(processes, "has_tpu", lambda: True)
  assert not processes.connect()
  with pytest.raises(UserError, match=r"`coordinator=auto`: .* not find"):
    processes.connect("auto")


@pytest.mark.parametrize(
  ("arguments", "field"),
  [
    ((None, 2, None), "num_processes"),
    (("auto", None, 0), "process_id"),
    (("localhost", 2, 0), "coordinator"),
    (("localhost:9876", None, 0), "coordinator"),
    (("localhost:9876", 2, None), "coordinator"),
    (("localhost:9876", 2, 2), "coordinator"),
  ],
)
def test_half_an_address_is_refused_by_name(joined, arguments, field):
  with pytest.raises(UserError) as refused:
    processes.connect(*arguments)
  assert refused.value.field == field and not joined


def test_tpus_are_seen(tmp_path, monkeypatch):
  monkeypatch.setenv("JAX_PLATFORMS", "")
  monkeypatch.setattr(importlib.util, "find_spec", lambda _: "libtpu")
  assert not processes.has_tpu(tmp_path)
  (tmp_path / "accel0").touch()
  assert processes.has_tpu(tmp_path)
  monkeypatch.setenv("JAX_PLATFORMS", "cpu")
  assert not processes.has_tpu(tmp_path)


_SMALL = ["--images_per_class=40", "--phases=1", "--meta_epochs=2"]
_DIGITS = ["experiments.digits", *_SMALL, "--adjust"]


def _start(command, workdir, *flags, devices=1, cache=None):
  if cache:
    compilations.share_kernels(cache)
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


def _folder(path, each):
  """Four classes of images that have one colour each."""
  rng = np.random.default_rng(0)
  for name in "abcd":
    for i in range(each):
      color = tuple(rng.integers(0, 256, 3).tolist())
      data_files.save_image(path / f"train/{name}/{i}.png", color)
  return path


@pytest.mark.slow
def test_two_processes_read_a_folder_together(tmp_path):
  """Both take half of the images, and have those of one process."""
  images = _folder(tmp_path / "images", each=12)
  (images / "train/a/broken.png").write_bytes(b"no image")
  command = ["experiments.folder", f"--data={images}", "--base_classes=2"]
  command += ["--phases=2", "--exemplars=herding", "--finetune=none"]
  alone, together = tmp_path / "alone", tmp_path / "together"
  texts = _ends(_pair(command, together, cache=tmp_path / "cache of two"))
  assert "unreadable train/a/broken.png" in texts[0][0]
  _ends([_start(command, alone, devices=2, cache=tmp_path / "cache of one")])
  results = [(path / "results.json").read_text() for path in (alone, together)]
  assert results[0] == results[1]


_READ = """
import sys
import jax, numpy as np
from mnemonics_jax import phase
from mnemonics_jax.data.images import Resident, Stored
from mnemonics_jax.parallel import mesh, processes

class Noted(Resident):
  rows = []
  def read(self, rows, draws=None):
    self.rows.extend(rows.tolist())
    return super().read(rows, draws)

processes.connect(sys.argv[1], 2, int(sys.argv[2]))
pixels = np.arange(40, dtype=np.uint8).repeat(192).reshape(40, 8, 8, 3)
store, labels = Noted(pixels), np.zeros(40, np.int32)
with mesh.use():
  feed = phase.Streamed(Stored(store, np.arange(40)), labels, capacity=40)
  schedule = phase.Schedule(epochs=1, batch_size=8)
  blocks = [block for block, _ in feed.blocks(jax.random.key(0), schedule)]
  sums = jax.jit(lambda x: x.astype(int).sum())
  whole = [int(sums(block.images)) for block in blocks]
print("rows", *sorted(store.rows))
print("sums", *whole)
"""


@pytest.mark.slow
def test_each_process_reads_its_share_of_what_streams(tmp_path):
  with socket.socket() as free:
    free.bind(("localhost", 0))
    address = f"localhost:{free.getsockname()[1]}"
  pair = [
    subprocess.Popen(
      [sys.executable, "-c", _READ, address, str(index)],
      cwd=_ROOT,
      env=os.environ | {"XLA_FLAGS": ""},
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
      text=True,
    )
    for index in range(2)
  ]
  texts = [out for out, _ in _ends(pair)]
  lines = lambda word: [
    [int(n) for n in line.split()[1:]]
    for text in texts
    for line in text.splitlines()
    if line.startswith(word)
  ]
  one, two = lines("rows")
  assert len(one) == len(two) == 20 and sorted(one + two) == [*range(40)]
  assert lines("sums") == [[192 * sum(range(40))]] * 2


@pytest.mark.slow
def test_two_processes_stream_to_the_same_bits(tmp_path):
  """As two that hold all images, and as one with as many devices."""
  images = _folder(tmp_path / "images", each=30)
  command = ["experiments.folder", f"--data={images}", "--base_classes=2"]
  command += ["--phases=2", "--meta_epochs=2", "--finetune=all"]
  command += ["--exemplars=mnemonics"]
  alone = lambda *args, **options: [_start(*args, devices=2, **options)]
  found, losses = set(), []
  for start, stream in [(_pair, "never"), (_pair, "always"), (alone, "always")]:
    workdir = tmp_path / str(len(losses))
    cache = tmp_path / f"cache {len(losses)}"
    _ends(start(command, workdir, f"--stream={stream}", cache=cache))
    found.add((workdir / "results.json").read_text())
    losses.append(_epochs(workdir))
  assert len(found) == 1 and losses[0] == losses[1] == losses[2]


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
