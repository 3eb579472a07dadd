"""`experiments.digits` from the command line to its page, over two seeds."""

import json

import numpy as np
import pytest
from support import command

QUICK = (
  "--preset=smoke", "--epochs=1", "--base_epochs=1", "--images_per_class=20",
  "--meta_epochs=1", "--adjust", "--base_classes=6", "--phases=2", "--seeds=0,1",
  "--workdir=out",
)  # fmt: skip


@pytest.fixture(scope="module")
def home(tmp_path_factory):
  return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def finished(home):
  done = command.call("digits", *QUICK, cwd=home, train=True)
  assert not done.code, done.err
  return home / "out", done.out


def test_a_run_says_what_it_does_and_ends_with_the_report(finished):
  _, output = finished
  first = output.splitlines()[0]
  for part in ("10 classes of digits", "3 phases of 6 + 2×2", "lucir",
               "mnemonics", "per seed (0, 1)", "per_class:5", "50 images", "9.6 kB",
               "`head`", "to out"):  # fmt: skip
    assert part in first
  assert "head" in output and "nme" in output
  assert output.splitlines()[-1] == "Report: out/report.html"
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
  lines = (workdir / "metrics.jsonl").read_text().splitlines()
  metrics = [json.loads(line) for line in lines]
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
  one, other = (
    np.load(workdir / f"seed_{seed}" / "phase_02.npz")["memory/images"]
    for seed in (0, 1)
  )
  assert (one != other).any()


def test_the_same_command_again_trains_nothing(home, finished):
  workdir, _ = finished
  before = (workdir / "metrics.jsonl").read_bytes()
  again = command.call("digits", *QUICK, cwd=home)
  assert not again.code and "epoch" not in again.out
  assert (workdir / "metrics.jsonl").read_bytes() == before


def test_another_configuration_is_refused_and_nothing_touched(home, finished):
  workdir, _ = finished
  stamp = lambda: {p: p.stat().st_mtime_ns for p in workdir.rglob("*")}
  before = stamp()
  done = command.call("digits", *QUICK, "--method=lwf", cwd=home)
  said = "--workdir=out", "method (lucir there, lwf now)", "--fresh"
  command.assert_refused(done, *said)
  assert stamp() == before
