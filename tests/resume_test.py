"""Interrupted runs end as if nothing had happened; damage is found and told."""

import contextlib
import dataclasses
import errno
import functools
import json
import os
import re
import shutil
import signal
import subprocess

import interrupted
import jax
import numpy as np
import pytest
import tiny

from experiments import saving as saving_lib
from experiments import workdir as workdir_lib
from experiments.settings import UserError
from experiments.stopping import Stopped
from mnemonics_jax import checkpoint, methods, networks, training
from mnemonics_jax.methods import bic
from mnemonics_jax.model import Model
from mnemonics_jax.report import read_metrics
from mnemonics_jax.types import Memory, PhaseState

WHOLE_NETWORK = dataclasses.replace(interrupted.RECIPE, scope="all")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
  """What a run leaves that was never interrupted."""

  @functools.cache
  def get(changes=()):
    workdir = tmp_path_factory.mktemp("whole")
    interrupted.run(workdir, interrupted.NEVER, **dict(changes))
    return interrupted.files(workdir)

  return lambda **changes: get(tuple(sorted(changes.items())))


@pytest.fixture(scope="module")
def halfway(tmp_path_factory):
  """A run that was stopped in phase 2, with two checkpoints of that phase."""
  workdir = tmp_path_factory.mktemp("halfway") / "out"
  checkpoints = workdir / "seed_0" / "checkpoints"
  parts = lambda: len(list(checkpoints.glob("phase_02_part_*"))) == 2
  assert not interrupted.run_until(workdir, parts)
  return workdir


@pytest.fixture
def workdir(halfway, tmp_path):
  """A copy of it."""
  return shutil.copytree(halfway, tmp_path / "out")


def _saved(workdir):
  return sorted((workdir / "seed_0" / "checkpoints").iterdir())


def assert_log_is_whole(workdir):
  """The log is the beginning of a whole one: nothing twice, nothing missing."""
  places = [
    (r["seed"], r["phase"], r["stage"], r["epoch"])
    for r in read_metrics(workdir)
    if r["kind"] == "epoch"
  ]
  settings = json.loads((workdir / "config.json").read_text())["settings"]
  if settings.get("exemplar_chunk"):  # As many epochs as there are chunks.
    assert len(set(places)) == len(places)
    return
  learned, adjust = settings["exemplars"] == "mnemonics", settings["adjust"]
  epochs = {
    "train": 2,
    "exemplars": 2 if learned else 0,
    "adjust": 4 if adjust else 0,
    "finetune": 2,
  }
  whole = [
    (seed, phase, stage, epoch)
    for seed in settings["seeds"]
    for phase in range(settings["phases"] + 1)
    for stage in epochs
    if phase or stage != "adjust"
    for epoch in range(epochs[stage])
  ]
  assert places == whole[: len(places)]


@pytest.mark.parametrize(
  "stride, changes",
  [
    pytest.param(5, dict(), id="lucir"),
    pytest.param(
      5, dict(method="icarl", exemplars="herding", adjust=False, seeds=(0, 1)),
      id="icarl", marks=pytest.mark.slow,
    ),
    pytest.param(
      5, dict(method="bic", transfer="in_out", recipe=WHOLE_NETWORK),
      id="bic", marks=pytest.mark.slow,
    ),
    pytest.param(
      5, dict(exemplar_chunk=1), id="chunks", marks=pytest.mark.slow
    ),
  ],
)  # fmt: skip
def test_stopping_again_and_again_changes_nothing(
  tmp_path, whole, capsys, stride, changes
):
  starts = 1
  while not interrupted.run_until(tmp_path, stride, **changes):
    starts += 1
    assert_log_is_whole(tmp_path)
    assert starts < 100
  assert starts > 3
  assert interrupted.files(tmp_path) == whole(**changes)
  assert_log_is_whole(tmp_path)
  if not changes:
    output = capsys.readouterr().out
    assert re.search(
      r"Checkpoint after phase 1: [\d.]+ MB in [\d.]+ s\.", output
    )
    # Not only between stages, but within each of them.
    for stage in ("train", "exemplars", "adjust", "finetune"):
      assert re.search(
        rf"Continuing seed 0 in phase \d, stage {stage}\.", output
      )


def test_a_shared_base_model_changes_nothing(tmp_path, whole):
  workdir, models = tmp_path / "out", tmp_path / "models"
  starts = 1
  while not interrupted.run_until(workdir, 8, base_models=models):
    starts += 1
    assert_log_is_whole(workdir)
  assert starts > 3
  assert interrupted.files(workdir) == whole()
  assert_log_is_whole(workdir)
  (model,) = models.iterdir()
  # Another run finds it, and a killed one's draft does no harm.
  (models / f"{model.name}.partial-1").mkdir()
  interrupted.run(tmp_path / "again", interrupted.NEVER, base_models=models)
  assert interrupted.files(tmp_path / "again") == whole()
  assert list(models.iterdir()) == [model]


def test_a_base_model_that_another_run_has_finished_first(tmp_path, whole):
  workdir, models = tmp_path / "out", tmp_path / "models"
  assert not interrupted.run_until(workdir, 1, base_models=models)
  other = tmp_path / "other"
  assert not interrupted.run_until(
    other, lambda: [*models.glob("*")], base_models=models
  )
  interrupted.run(workdir, interrupted.NEVER, base_models=models)
  assert interrupted.files(workdir) == whole()
  assert_log_is_whole(workdir)


def test_a_signal_saves_at_the_next_opportunity(tmp_path, whole, monkeypatch):
  finite = training.finite

  def ask(variables):
    monkeypatch.setattr(training, "finite", finite)
    os.kill(os.getpid(), signal.SIGTERM)
    return finite(variables)

  monkeypatch.setattr(training, "finite", ask)
  with pytest.raises(Stopped) as stopped:
    interrupted.run(tmp_path, interrupted.NEVER)
  assert stopped.value.code == 143
  assert "same command continues" in str(stopped.value)
  (part,) = _saved(tmp_path)
  assert checkpoint.restore(part)[1]["stage"] == "train"
  interrupted.run(tmp_path, interrupted.NEVER)
  assert interrupted.files(tmp_path) == whole()


def test_parts_are_pruned_and_phases_kept(workdir):
  names = [path.name for path in _saved(workdir)]
  assert names[:2] == ["phase_00", "phase_01"]
  assert all(name.startswith("phase_02_part_") for name in names[2:])
  assert len(names) == 4
  interrupted.run(workdir, saving_lib.Policy(0.0, keep=2))
  assert [path.name for path in _saved(workdir)] == ["phase_01", "phase_02"]


def _truncate(path):
  file = max(path.rglob("*"), key=lambda p: p.is_file() and p.stat().st_size)
  os.truncate(file, file.stat().st_size // 2)


def _flip(path):
  file = max(path.rglob("*"), key=lambda p: p.is_file() and p.stat().st_size)
  content = bytearray(file.read_bytes())
  content[len(content) // 2] ^= 1
  file.write_bytes(content)


def _delete_a_file(path):
  next(
    p for p in path.rglob("*") if p.is_file() and "arrays" in str(p)
  ).unlink()


def _delete_the_manifest(path):
  (path / "manifest.json").unlink()


def _empty(path):
  shutil.rmtree(path)
  path.mkdir()


@pytest.mark.parametrize(
  "kind, damage",
  [
    ("phase_02_part_*", _truncate),
    ("phase_02_part_*", _flip),
    ("phase_02_part_*", _delete_a_file),
    ("phase_02_part_*", _delete_the_manifest),
    ("phase_02_part_*", _empty),
    ("phase_01", _flip),
    ("phase_01", _empty),
  ],
)
def test_a_damaged_checkpoint_is_set_aside(
  workdir, whole, capsys, kind, damage
):
  checkpoints = workdir / "seed_0" / "checkpoints"
  newest = max(checkpoints.glob(kind))
  damage(newest)
  capsys.readouterr()
  assert not interrupted.run_until(workdir, 1)
  output = capsys.readouterr().out
  assert f"{newest} is damaged (" in output
  assert f"It is now damaged_{newest.name}" in output
  assert (checkpoints / f"damaged_{newest.name}").exists()
  assert_log_is_whole(workdir)
  if damage is _flip:
    interrupted.run(workdir)
    assert interrupted.files(workdir) == whole()


def test_parts_that_rest_on_a_damaged_phase_are_dropped(workdir, whole):
  checkpoints = workdir / "seed_0" / "checkpoints"
  _flip(checkpoints / "phase_01")
  # Phase 1 is done again without a checkpoint in its middle.
  after = lambda: (checkpoints / "phase_01").exists()
  saving = saving_lib.Policy(1e9)
  assert not interrupted.run_until(workdir, after, saving=saving)
  assert not list(checkpoints.glob("phase_02_part_*"))
  interrupted.run(workdir)
  assert interrupted.files(workdir) == whole()
  assert_log_is_whole(workdir)


def test_what_a_run_falls_back_on_is_kept(workdir):
  checkpoints = workdir / "seed_0" / "checkpoints"
  _flip(checkpoints / "phase_01")
  interrupted.run_until(workdir, 1, saving=saving_lib.Policy(0.0, keep=1))
  assert (checkpoints / "phase_00").exists()


def test_trouble_with_reading_is_no_damage(workdir, monkeypatch):
  before = sorted(workdir.rglob("*"))

  def fail(_):
    raise OSError(errno.EIO, os.strerror(errno.EIO))

  monkeypatch.setattr(checkpoint, "restore", fail)
  with pytest.raises(UserError, match=r"cannot be read now .* Nothing was"):
    interrupted.run(workdir)
  assert sorted(workdir.rglob("*")) == before


def test_another_number_of_devices_begins_the_phase_again(
  workdir, monkeypatch, capsys
):
  restore = checkpoint.restore

  def elsewhere(path):
    tree, info = restore(path)
    return tree, info | {"devices": 8}

  monkeypatch.setattr(checkpoint, "restore", elsewhere)
  _flip(_saved(workdir)[-1])  # Damage on top does not matter.
  interrupted.run_until(workdir, 1)
  assert "made on 8 devices; the phase begins again" in capsys.readouterr().out
  # The older parts rest on a log that is gone.
  names = [path.name for path in _saved(workdir)]
  assert [n for n in names if n.startswith("phase_02")] == ["phase_02_part_000"]
  assert any(name.startswith("damaged_") for name in names)
  assert_log_is_whole(workdir)


def test_a_cifar_checkpoint_stays_small(tmp_path):
  model = Model(networks.resnet32(), methods.LUCIR().head, 100)
  rng = np.random.default_rng(0)
  images = rng.integers(0, 256, (100, 20, 32, 32, 3), np.uint8)
  memory = Memory(images, np.full(100, 20, np.int32))
  key = jax.random.key(0)
  state = PhaseState(model.init(key), memory, key, 6, 100)
  size = checkpoint.save(tmp_path / "phase_05", saving_lib._pack(state))
  assert 6e6 < size < 30e6


def test_a_damaged_only_checkpoint_is_an_error(tmp_path):
  interrupted.run_until(tmp_path, 1)
  (only,) = (tmp_path / "seed_0" / "checkpoints").iterdir()
  _flip(only)
  before = sorted(tmp_path.rglob("*"))
  for _ in range(2):  # It stays one.
    with pytest.raises(UserError, match=r"part_000 is damaged.*--fresh"):
      interrupted.run(tmp_path)
  assert sorted(tmp_path.rglob("*")) == before


def test_drafts_of_a_killed_process_are_cleared(workdir):
  draft = workdir / "seed_0" / "checkpoints" / "phase_02_part_009.partial-1"
  draft.mkdir()
  (draft / "manifest.json").write_text("{")
  interrupted.run_until(workdir, 1)
  assert not draft.exists()


# --- the work directory


def test_two_processes_do_not_share_a_directory(workdir):
  before = (workdir / "metrics.jsonl").read_bytes()
  with workdir_lib.locked(workdir):
    with pytest.raises(
      workdir_lib.BusyError, match=f"process {os.getpid()} on"
    ):
      interrupted.run(workdir)
    assert (workdir / "metrics.jsonl").read_bytes() == before
  # The lock of a process that is gone counts nothing.
  (workdir / "lock").write_text("process 999999 on elsewhere\n")
  interrupted.run_until(workdir, 1)
  assert f"process {os.getpid()} on" in (workdir / "lock").read_text()


def test_other_data_are_refused(workdir, monkeypatch):
  other = tiny.dataset(classes=4, seed=1)
  monkeypatch.setattr(tiny, "dataset", lambda **_: other)
  with pytest.raises(UserError, match="on other data"):
    interrupted.run(workdir)


def test_a_kill_before_the_first_file_locks_nobody_out(tmp_path):
  (tmp_path / "config.json.1.draft").write_text("{")
  assert not interrupted.run_until(tmp_path, 1)
  assert not list(tmp_path.rglob("*.draft"))


def test_a_fresh_start_leaves_the_old_directory(tmp_path):
  out = tmp_path / "out"
  assert workdir_lib.fresh(out) == out
  out.mkdir()
  assert workdir_lib.fresh(out) == tmp_path / "out-2"
  (tmp_path / "out-2").mkdir()
  assert workdir_lib.fresh(out) == tmp_path / "out-3"


def test_other_packages_are_told(workdir, capsys):
  path = workdir / "config.json"
  config = json.loads(path.read_text())
  config["environment"]["packages"]["jax"] = "0.0.1"
  path.write_text(json.dumps(config))
  capsys.readouterr()
  interrupted.run_until(workdir, 1)
  assert "was 0.0.1: last digits may differ." in capsys.readouterr().out


def test_other_settings_are_refused(workdir):
  with pytest.raises(UserError, match=r"epochs \(2 there, 3 now\)"):
    interrupted.run(workdir, epochs=3)


# --- full and read-only disks


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
  good, log = _saved(workdir), (workdir / "metrics.jsonl").read_bytes()
  ballast = small_disk / "ballast"
  with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
    while True:
      file.write(bytes(4096))
  with pytest.raises((UserError, OSError), match=r"No space left on device"):
    interrupted.run(workdir, tensorboard=True)
  assert _saved(workdir) == good
  assert (workdir / "metrics.jsonl").read_bytes().startswith(log)
  ballast.unlink()
  interrupted.run(workdir, saving_lib.Policy(1e9, keep=1))
  assert interrupted.files(workdir)["results"] == whole()["results"]


def test_a_read_only_disk_ends_the_run(small_disk, halfway):
  workdir = shutil.copytree(halfway, small_disk / "out")
  remount = lambda how: subprocess.run(
    ["mount", "-o", f"remount,{how}", str(small_disk)], check=True
  )
  remount("ro")
  try:
    with pytest.raises(OSError, match=r"Read-only file system"):
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
  good = _saved(workdir)

  def fail(*_, **__):
    raise error

  with monkeypatch.context() as patch:
    patch.setattr(checkpoint.ocp.Checkpointer, "save", fail)
    with pytest.raises(UserError, match=re.escape(str(good[-1]))):
      interrupted.run(workdir)
  assert _saved(workdir) == good


# --- numbers that are not


RESTLESS = dataclasses.replace(interrupted.RECIPE, inner_lr=float("inf"))


@pytest.mark.parametrize(
  "stage, phase, changes",
  [
    ("train", 0, dict(learning_rate=1e30)),
    ("finetune", 0, dict(finetune_learning_rate=1e30)),
    ("exemplars", 0, dict(recipe=RESTLESS)),
    ("adjust", 1, dict(recipe=RESTLESS, exemplars="herding")),
    ("train", 1, dict(method="bic")),
  ],
  ids=["train", "finetune", "exemplars", "adjust", "bic"],
)
def test_divergence_stops_the_run_before_it_is_saved(
  tmp_path, monkeypatch, stage, phase, changes
):
  monkeypatch.setattr(bic, "fit_bias", lambda *_, **__: (float("nan"), 0.0))
  with pytest.raises(UserError) as raised:
    interrupted.run(tmp_path, **changes)
  message = str(raised.value)
  assert message.startswith(f"Seed 0, phase {phase}, stage {stage}: ")
  assert "diverged" in message and "usually help" in message
  assert "The last good checkpoint is" in message
  for path in _saved(tmp_path):
    tree, _ = checkpoint.restore(path)
    for content in jax.tree.leaves(tree):
      assert np.isfinite(content).all(), path.name


def test_records_of_phases_are_in_the_checkpoint(halfway, whole):
  results = json.loads(whole()["results"])
  _, info = checkpoint.restore(halfway / "seed_0" / "checkpoints" / "phase_01")
  assert info["records"] == results["runs"][0]["phases"][:2]
