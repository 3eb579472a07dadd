"""Benchmarks run from end to end and write what they print."""

import json
import pathlib
import subprocess
import sys

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


@pytest.mark.slow
def test_hypergradient_quick(tmp_path):
  output = tmp_path / "result.json"
  command = [sys.executable, "-m", "benchmarks.hypergradient", "--quick"]
  done = subprocess.run(
    [*command, "--rounds=1", f"--output={output}"],
    cwd=_ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert done.returncode == 0, done.stderr
  results = json.loads(output.read_text())
  names = {row["name"] for row in results["meta_step_2"]}
  assert {f'ours, remat="{r}"' for r in ("none", "step", "nested")} <= names
  assert "torch" in results["versions"] or "PyTorch is not" in done.stdout
  for row in results.get("agreement", []):
    assert row["relative difference"] < 1e-6
