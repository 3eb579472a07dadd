"""Benchmarks run from end to end and write what they print."""

import ast
import importlib
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import measure

_ROOT = pathlib.Path(__file__).parents[1]


def test_best_takes_fastest_times_and_highest_peak():
  samples = [measure.Sample(3.0, 5.0, 10), measure.Sample(2.0, 6.0, 30)]
  assert measure.best(samples) == measure.Sample(2.0, 5.0, 30)


def test_table_is_aligned_markdown():
  rows = [{"": "a", "time": 1}, {"": "long", "time": 12}]
  assert measure.table(rows).splitlines() == [
    "|      | time |",
    "| ---- | ---: |",
    "| a    |    1 |",
    "| long |   12 |",
  ]


_FILES = sorted((_ROOT / "benchmarks").glob("*.py"))
_OF_NAMED_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def _private(name):
  dunder = name.startswith("__")
  return name.startswith("_") and not dunder and name not in _OF_NAMED_TUPLES


@pytest.mark.parametrize("file", _FILES, ids=lambda file: file.stem)
def test_benchmarks_use_public_names_that_exist(file):
  for node in ast.walk(ast.parse(file.read_text())):
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
      assert node.value.id == "self" or not _private(node.attr), node.attr
    if isinstance(node, ast.ImportFrom):
      assert not any(_private(alias.name) for alias in node.names)
      if node.module.startswith("mnemonics_jax"):
        module = importlib.import_module(node.module)
        for alias in node.names:
          if not hasattr(module, alias.name):
            importlib.import_module(f"{node.module}.{alias.name}")


def _quick(name, folder, *flags):
  output = folder / "result.json"
  done = subprocess.run(
    [
      *(sys.executable, "-m", f"benchmarks.{name}", "--quick"),
      *(f"--output={output}", *flags),
    ],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(output.read_text()), done.stdout


@pytest.mark.slow
def test_hypergradient_quick(tmp_path):
  results, text = _quick("hypergradient", tmp_path, "--rounds=1")
  names = {row["name"] for row in results["meta_step_2"]["rows"]}
  assert {f'ours, remat="{r}"' for r in ("none", "step", "nested")} <= names
  versions = results["meta_step_2"]["versions"]
  assert "torch" in versions or "PyTorch is not" in text
  for row in results.get("agreement", {"rows": []})["rows"]:
    assert row["relative difference"] < 1e-6


@pytest.mark.slow
def test_gradients_of_resnet32_are_those_of_pytorch(tmp_path):
  pytest.importorskip("torch")
  problem = dict(network="resnet32", exemplars=10, valid=10)
  path = f"{tmp_path}/problem.npz"

  def gradient(factory, form="auto", **options):
    environment = {"MNEMONICS_CPU_CONV": form}
    name = f"benchmarks.{factory}"
    with measure.Contestant(
      name, threads=2, environment=environment, path=path, **options
    ) as contestant:
      return contestant.turn() and contestant.result()[1]

  def ours(form):
    return gradient(
      "jax_resnet:meta_step", form, problem=problem, inner_steps=1, remat="step"
    )

  def torchs(double):
    return gradient(
      "torch_resnet:meta_step", inner_steps=1, channels_last=True, double=double
    )

  measure.Contestant(
    "benchmarks.jax_resnet:write", threads=2, path=path, problem=problem
  ).close()
  exact = torchs(double=True)
  error = lambda found: np.linalg.norm(found - exact) / np.linalg.norm(exact)
  rounding = error(torchs(double=False))
  assert rounding < 1e-3
  for form in ("native", "xla"):
    assert error(ours(form)) < 3 * rounding, form


@pytest.mark.slow
def test_train_step_quick(tmp_path):
  results, _ = _quick("train_step", tmp_path, "--rounds=1")
  for kind in ("plain", "in_out", "out"):
    first = [row["first_loss"] for row in results[kind]["rows"]]
    assert max(first) / min(first) - 1 < 1e-3
  assert all(row["ours"] > 0 for row in results["profile"]["rows"])


@pytest.mark.slow
def test_phases_quick(tmp_path):
  results, _ = _quick("phases", tmp_path)
  assert [row["compiled"] for row in results["phases"]["rows"][2:]] == [0] * 4


@pytest.mark.slow
def test_start_quick(tmp_path):
  results, _ = _quick("start", tmp_path)
  first, second, continued = results["digits_preset=smoke"]["rows"]
  assert second["compile"] < first["compile"] / 2
  assert continued["compile"] < first["compile"] / 2
  assert first["programs"] == second["programs"] > 50


@pytest.mark.slow
def test_scaling_quick(tmp_path):
  results, _ = _quick("scaling", tmp_path, "--rounds=1")
  for row in results["devices"]["rows"]:
    assert row["difference"] < 1e-5
    moves = {name for name, count in row["moves"].items() if count}
    assert moves <= {"all-reduce", "reduce-scatter"}
  _, same = results["two_processes"]["rows"]
  assert same["against"] == "one process, 2 devices"
  assert same["difference"] < 1e-5


@pytest.mark.slow
def test_memory_quick(tmp_path):
  results, _ = _quick("memory", tmp_path)
  assert results["memory"]["rows"]


@pytest.mark.slow
def test_input_quick(tmp_path):
  results, text = _quick("input", tmp_path)
  rates = {r["part"]: r["images_per_second"] for r in results["core"]["rows"]}
  assert rates["read"] > rates["all of it (pillow)"] > 0
  machines = results["machines"]["rows"]
  assert [row["machine"] for row in machines] == ["A100"] * 2 + [
    "TPU v5e-8"
  ] * 2
  # 15 % of 312 Tflop/s are 4,286 images of 10.9 Gflop each.
  assert round(machines[0]["images_per_second"]) == 4286
  assert all(0 <= row["waited"] <= 1 for row in results["waiting"]["rows"])
  assert "Worker processes" in text


@pytest.mark.slow
def test_streaming_quick(tmp_path):
  results, _ = _quick("streaming", tmp_path)
  few, many = results["streaming"]["rows"]
  assert (few["images"], many["images"]) == (200, 800)
  # 600 images of 16×16 are half a megabyte; what else a process takes varies.
  assert abs(many["peak_bytes"] - few["peak_bytes"]) < 60e6 < few["peak_bytes"]
  assert 0 < many["list_seconds"] < many["second_look_seconds"] < 20


def test_replay_keeps_what_the_preset_keeps():
  """In a process of its own, for its flags are called as those of experiments."""
  code = (
    "import sys\nfrom absl import flags\nfrom benchmarks import replay\n"
    "flags.FLAGS(sys.argv)\n"
    "found = replay.settings_from_flags()\n"
    "print(found.codec, found.memory)"
  )
  kept = lambda *given: subprocess.run(
    [sys.executable, "-c", code, "--dataset=cifar100", *given],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=True,
  ).stdout.strip()
  # 20 images of 32 × 32 pixels, as they are.
  assert kept("--preset=best") == "jpeg:90 per_class_bytes:61440"
  assert kept("--preset=best", "--codec=raw").startswith("raw ")


@pytest.mark.slow
def test_replay_quick(tmp_path):
  results, text = _quick(
    "replay", tmp_path, "--forms=herding,selected,low", "--seeds=0,1"
  )
  (part,) = results.values()
  assert part["seeds"] == [0, 1]
  assert text.count("After an imitated next phase") == 2  # One for each seed.
  rows = {row["form"]: row for row in part["rows"]}
  assert rows["herding"]["loss_difference"] == 0
  assert rows["low"]["change"] > 0 == rows["selected"]["change"]
  assert all(0 < row["loss"] < 20 for row in rows.values())
