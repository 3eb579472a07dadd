"""`experiments.digits`, run as a user runs it."""

import json
import os
from pathlib import Path
import subprocess
import sys

import numpy as np
import pytest
from support import compilations

ROOT = Path(__file__).parents[2]
QUICK = (
  "--preset=smoke", "--epochs=1", "--base_epochs=1", "--images_per_class=20",
  "--meta_epochs=1", "--adjust", "--base_classes=6", "--phases=2",
)  # fmt: skip


def _call(name, *flags, cwd):
  compilations.share_kernels(cwd / ".cache")
  return subprocess.run(
    [sys.executable, "-m", f"experiments.{name}", *map(str, flags)],
    cwd=cwd,
    env={"PATH": "/usr/bin:/bin", "HOME": str(cwd), "JAX_PLATFORMS": "cpu",
         "PYTHONPATH": str(ROOT), "XLA_FLAGS": os.environ["XLA_FLAGS"]},
    capture_output=True,
    text=True,
    timeout=600,
  )  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
  """One quick run over two seeds."""
  home = tmp_path_factory.mktemp("home")
  done = _call("digits", *QUICK, "--seeds=0,1", "--workdir=out", cwd=home)
  assert done.returncode == 0, done.stderr
  return home / "out", done.stdout


def test_a_run_says_what_it_does_and_ends_with_the_report(finished):
  workdir, output = finished
  first = output.splitlines()[0]
  for part in ("10 classes of digits", "3 phases of 6 + 2×2", "lucir",
               "mnemonics", "per seed (0, 1)", "per_class:5", "50 images", "9.6 kB",
               "`head`", "to out"):  # fmt: skip
    assert part in first
  assert "head" in output and "nme" in output
  assert output.splitlines()[-1] == f"Report: {workdir.name}/report.html"
  assert "Traceback" not in output


def test_the_work_directory_is_complete(finished):
  workdir, _ = finished
  config = json.loads((workdir / "config.json").read_text())
  assert config["settings"]["seeds"] == [0, 1]
  assert config["environment"]["packages"]["jax"]
  assert "experiments.digits" in config["command"]
  results = json.loads((workdir / "results.json").read_text())
  assert results["classes_per_phase"] == [6, 2, 2]
  assert [run["seed"] for run in results["runs"]] == [0, 1]
  metrics = [
    json.loads(line)
    for line in (workdir / "metrics.jsonl").read_text().splitlines()
  ]
  epochs = [m for m in metrics if m["kind"] == "epoch"]
  stages = [m["stage"] for m in epochs if m["seed"] == 1]
  assert stages.count("train") == stages.count("exemplars") == 3
  assert stages.count("adjust") == 2 * 2
  assert len(metrics) == len(epochs) + 2 * 3
  assert (workdir / "report.html").stat().st_size > 10_000
  assert list((workdir / "tensorboard").rglob("*tfevents*"))
  for png in (workdir / "figures").glob("*.png"):
    assert png.with_suffix(".csv").exists()


def test_results_follow_from_the_stored_confusion_counts(finished):
  workdir, _ = finished
  results = json.loads((workdir / "results.json").read_text())
  for run in results["runs"]:
    accuracies = []
    for phase, record in enumerate(run["phases"]):
      path = workdir / f"seed_{run['seed']}" / f"phase_{phase:02d}.npz"
      counts = np.load(path)["confusion/final/head"]
      assert len(counts) == record["classes_seen"] == 6 + 2 * phase
      accuracies.append(np.trace(counts) / counts.sum())
      assert record["accuracy"]["head"] == pytest.approx(accuracies[-1])
    base = counts[:6, :].sum(), np.trace(counts[:6, :6])
    forgetting = run["phases"][0]["accuracy"]["head"] - base[1] / base[0]
    assert run["forgetting"]["head"] == pytest.approx(forgetting)
    assert run["average"]["head"] == pytest.approx(np.mean(accuracies))
  values = [run["average"]["head"] for run in results["runs"]]
  mean = results["summary"]["head"]["average"]["mean"]
  assert mean == pytest.approx(np.mean(values))


def test_seeds_differ(finished):
  workdir, _ = finished
  memories = [
    np.load(workdir / f"seed_{s}" / "phase_02.npz")["memory/images"]
    for s in (0, 1)
  ]
  assert (memories[0] != memories[1]).any()


def test_the_same_command_again_trains_nothing(finished):
  workdir, _ = finished
  before = (workdir / "metrics.jsonl").read_bytes()
  again = _call(
    "digits", *QUICK, "--seeds=0,1", "--workdir=out", cwd=workdir.parent
  )
  assert again.returncode == 0
  assert "epoch" not in again.stdout
  assert (workdir / "metrics.jsonl").read_bytes() == before


def test_another_configuration_is_refused_and_nothing_touched(finished):
  workdir, _ = finished
  stamp = lambda: {p: p.stat().st_mtime_ns for p in workdir.rglob("*")}
  before = stamp()
  done = _call(
    "digits", *QUICK, "--seeds=0,1", "--method=lwf", "--workdir=out",
    cwd=workdir.parent,
  )  # fmt: skip
  assert done.returncode == 2
  assert "method (lucir there, lwf now)" in done.stderr
  assert "--workdir=out" in done.stderr and "--fresh" in done.stderr
  assert stamp() == before


def test_divergence_is_explained(tmp_path):
  done = _call(
    "digits", *QUICK, "--learning_rate=1e30", "--workdir=out", cwd=tmp_path
  )
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert "phase 0" in done.stderr and "--learning_rate" in done.stderr


@pytest.mark.parametrize("damage", [b"[]", b"{", b"\xff\x00"])
def test_a_damaged_work_directory_is_explained(tmp_path, damage):
  (tmp_path / "out").mkdir()
  (tmp_path / "out" / "config.json").write_bytes(damage)
  done = _call("digits", *QUICK, "--workdir=out", cwd=tmp_path)
  assert done.returncode == 2 and "Traceback" not in done.stderr
  assert "config.json is damaged" in done.stderr
  assert (tmp_path / "out" / "config.json").read_bytes() == damage
