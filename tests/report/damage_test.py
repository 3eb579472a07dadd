"""Damage costs a line or a picture, not the report."""

import html
import json

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.runs import layout


@pytest.fixture
def run(tmp_path):
  return report_fixture.write(
    tmp_path / "run", groups=(1, 1, 1), seeds=(0, 1), learned=True
  )


def test_damaged_files_are_named_on_the_page_and_left_out(run):
  archive = run / "seed_0" / "phase_02.npz"
  archive.write_bytes(b"PK\x03\x04 not an archive")
  code = {"confusion/final/head": np.array([print], dtype=object)}
  np.savez(run / "seed_1" / "phase_02.npz", **code)
  truncated = run / "seed_0" / "phase_01.npz"
  truncated.write_bytes(truncated.read_bytes()[:200])
  log = layout.metrics_path(run)
  first, second, *others = log.read_text().splitlines(keepends=True)
  log.write_text("".join([first, second[:9], "\n", *others[:-1]]))
  page = html.unescape(report.build([run]).read_text())
  for path in (archive, run / "seed_1" / "phase_02.npz", truncated):
    assert f"{path} is damaged (" in page
  assert f"{log} is damaged: line 2 is not a JSON object" in page
  assert f"{log} lacks 1 of 6 phases" in page


def test_deleted_metrics_are_noticed(run):
  layout.metrics_path(run).unlink()
  loaded = report.load_run(run)
  assert loaded.metrics == []
  (problem,) = loaded.problems
  assert "lacks 6 of 6 phases" in problem


def test_what_is_whole_has_no_problems(run):
  loaded = report.load_run(run)
  assert loaded.metrics and loaded.arrays(1, 2)
  assert loaded.problems == []


@pytest.mark.parametrize("harm", ["lost", "wrong"])
def test_an_unfinished_run_is_known_up_to_the_damage(run, harm):
  results = layout.read_results(run)
  fields = results.keys() - {"seeds", "runs", "summary"}
  header = {name: results[name] for name in fields}
  layout.results_path(run).unlink()
  layout.write_config(run, {"results": header})
  lines = []
  for record, phase in (
    (run, phase) for run in results["runs"] for phase in run["phases"]
  ):
    line = {"kind": "phase", "seed": record["seed"], "seconds": {}, **phase}
    if phase["phase"] == 1 and record["seed"] == 1:
      if harm == "lost":
        continue
      line["accuracy"] = "high"
    lines.append(json.dumps(line) + "\n")
  layout.metrics_path(run).write_text("".join(lines))
  found = report.load_run(run, unfinished=True)
  assert found.results["classes_per_phase"] == [1]
  assert found.phases_left == 2
