"""Benchmarks run from end to end and write what they print."""

import ast
import importlib
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

from benchmarks import measure, replay

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


def _bench(parts=("one", "two"), **options):
  made = []
  parts = {name: lambda bench, n=name: made.append(n) for name in parts}
  return measure.Benchmark("test", parts, quick=["one"], **options), made


@pytest.mark.parametrize(
  "flags, expected",
  [
    ([], ["one", "two"]),
    (["--parts=two"], ["two"]),
    (["--quick"], ["one"]),
    (["--quick", "--parts=two"], ["two"]),
  ],
)
def test_parts_are_those_that_are_asked_for(monkeypatch, flags, expected):
  bench, made = _bench()
  monkeypatch.setattr(sys, "argv", ["test", *flags])
  bench.run()
  assert made == expected


def test_options_have_defaults_and_mistakes_are_told(monkeypatch, capsys):
  for flag in ("--parts=three", "--sizes=1"):
    bench, made = _bench()
    monkeypatch.setattr(sys, "argv", ["test", flag])
    with pytest.raises(SystemExit, match=r"three|sizes") as stop:
      bench.run()
    assert stop.value.code and not made
  bench, made = _bench(size=(int, "How much."), rounds=(5, "How often."))
  monkeypatch.setattr(sys, "argv", ["test", "--help"])
  bench.run()
  assert "How much." in capsys.readouterr().out and not made
  bench.options(["test", "--quick"])
  assert (bench.options.size, bench.rounds) == (None, 1)
  bench.options(["test", "--noquick", "--size=4"])
  assert (bench.options.size, bench.rounds) == (4, 5)


def test_results_of_other_parts_stay(monkeypatch, tmp_path, capsys):
  def part(name):
    def measured(bench):
      rows = [{"name": name, "bytes": 2**21}, {"name": "", "seconds": 1.25}]
      shown = {
        "name": ("", "{}"),
        "bytes": ("memory", measure.mebibytes),
        "seconds": ("time", "{:.1f} s"),
      }
      bench.add(name, "Title", rows, shown, size=3)

    return measured

  for name in ("one", "two"):
    bench = measure.Benchmark("test", {n: part(n) for n in ("one", "two")})
    given = [f"--parts={name}", f"--output={tmp_path}/deep/result.json"]
    monkeypatch.setattr(sys, "argv", ["test", *given])
    bench.run()
  found = json.loads((tmp_path / "deep/result.json").read_text())
  assert [*found] == ["one", "two"] and found["two"]["size"] == 3
  assert found["one"]["rows"][0] == {"name": "one", "bytes": 2**21}
  out = capsys.readouterr().out
  assert "| one |  2 MiB |       |" in out and "|     |        | 1.2 s |" in out


_FILES = sorted((_ROOT / "benchmarks").glob("*.py"))
_PAGES = [_ROOT / "benchmarks/README.md", *(_ROOT / "docs").glob("*.md")]
_COMMANDS = sorted(
  {
    (name, *re.findall(r"--\w+(?:=[^\s`]+)?", flags))
    for page in _PAGES
    for name, flags in re.findall(
      r"python -m\s+benchmarks\.([a-z]\w+)((?:\s+--\w+(?:=[^\s`]+)?)*)",
      page.read_text(),
    )
  }
)


@pytest.mark.parametrize("command", _COMMANDS, ids=" ".join)
def test_commands_that_pages_name_are_accepted(command):
  name, *given = command
  bench = importlib.import_module(f"benchmarks.{name}").BENCHMARK
  assert bench.name == name
  assert bench.wanted([name, *given])


def test_pages_name_every_benchmark():
  assert {name for name, *_ in _COMMANDS} == {
    file.stem for file in _FILES if "BENCHMARK =" in file.read_text()
  }


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
  results, text = _quick("hypergradient", tmp_path)
  names = {row["name"] for row in results["meta_step_2"]["rows"]}
  assert {f'ours, remat="{r}"' for r in ("none", "step", "nested")} <= names
  versions = results["meta_step_2"]["versions"]
  assert "torch" in versions or "PyTorch is not" in text
  for row in results.get("agreement", {"rows": []})["rows"]:
    assert row["relative difference"] < 1e-6
  first, *others = (row["meta_step"] for row in results["memory"]["rows"])
  assert first > max(others)


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
      "jax_meta:meta_step", form, problem=problem, inner_steps=1, remat="step"
    )

  def torchs(double):
    return gradient(
      "torch_models:meta_step", inner_steps=1, channels_last=True, double=double
    )

  measure.Contestant(
    "benchmarks.jax_meta:write", threads=2, path=path, problem=problem
  ).close()
  exact = torchs(double=True)
  error = lambda found: np.linalg.norm(found - exact) / np.linalg.norm(exact)
  rounding = error(torchs(double=False))
  assert rounding < 1e-3
  for form in ("native", "xla"):
    assert error(ours(form)) < 3 * rounding, form


@pytest.mark.slow
def test_train_step_quick(tmp_path):
  results, _ = _quick("train_step", tmp_path)
  for kind in ("plain", "in_out", "out"):
    first = [row["first_loss"] for row in results[kind]["rows"]]
    assert max(first) / min(first) - 1 < 1e-3
  assert all(row["ours"] > 0 for row in results["profile"]["rows"])


@pytest.mark.slow
def test_start_quick(tmp_path):
  results, _ = _quick("start", tmp_path)
  first, second, continued = results["digits_preset=smoke"]["rows"]
  assert second["compile"] < first["compile"] / 2
  assert continued["compile"] < first["compile"] / 2
  assert first["programs"] == second["programs"] > 50
  assert [row["compiled"] for row in results["phases"]["rows"][2:]] == [0] * 4


@pytest.mark.slow
def test_scaling_quick(tmp_path):
  results, _ = _quick("scaling", tmp_path)
  for row in results["devices"]["rows"]:
    assert row["difference"] < 1e-5
    moves = {name for name, count in row["moves"].items() if count}
    assert moves <= {"all-reduce", "reduce-scatter"}
  _, same = results["two_processes"]["rows"]
  assert same["against"] == "one process, 2 devices"
  assert same["difference"] < 1e-5


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


@pytest.mark.parametrize(
  "codec, kept",
  [
    # 20 images of 32 × 32 pixels, as they are.
    (None, ("jpeg:90", "per_class_bytes:61440")),
    ("raw", ("raw", "per_class_bytes:61440")),
  ],
)
def test_replay_keeps_what_the_preset_keeps(codec, kept):
  options = replay.BENCHMARK.options
  options(["replay", "--preset=best", *([f"--codec={codec}"] if codec else [])])
  settings = replay.settings_of(options)
  assert (settings.codec, settings.memory) == kept


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
