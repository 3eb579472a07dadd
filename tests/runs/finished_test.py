"""Runs as they lie on disk, finished or not."""

import pytest
from support import report_fixture

from mnemonics_jax import report, runs
from mnemonics_jax.runs import layout


@pytest.fixture
def unfinished(tmp_path):
  """Two seeds, the second of which lacks its last phase."""
  report_fixture.write(tmp_path)
  results = layout.read_results(tmp_path)
  header = {
    name: value
    for name, value in results.items()
    if name not in ("seeds", "runs", "summary")
  }
  layout.write_config(
    tmp_path, layout.read_config(tmp_path) | {"results": header}
  )
  layout.results_path(tmp_path).unlink()
  log = layout.metrics_path(tmp_path)
  lines = log.read_text().splitlines(keepends=True)
  last = max(i for i, line in enumerate(lines) if '"kind": "phase"' in line)
  log.write_text("".join(lines[:last]))
  return tmp_path, results


def test_an_unfinished_run_is_shown_as_far_as_all_seeds_have_come(unfinished):
  workdir, whole = unfinished
  run = runs.load_run(workdir, unfinished=True)
  assert run.phases_left == 1
  assert run.results["classes_per_phase"] == whole["classes_per_phase"][:-1]
  assert run.results["seeds"] == whole["seeds"]
  for name, summary in run.results["summary"].items():
    expected = whole["summary"][name]["per_phase"][:-1]
    means = [one["mean"] for one in summary["per_phase"]]
    assert means == pytest.approx([one["mean"] for one in expected])


def test_its_page_says_so(unfinished):
  workdir, whole = unfinished
  page = report.build([workdir]).read_text()
  phases = len(whole["classes_per_phase"])
  told = f"This run has not ended: {phases - 1} of {phases} phases"
  assert told in page
  assert '<p class="lead">So far the network' in page


def test_who_needs_a_finished_run_is_told(unfinished):
  with pytest.raises(runs.WorkdirError, match="is not finished"):
    runs.load_run(unfinished[0])


def test_before_the_first_phase_there_is_nothing_to_show(unfinished):
  workdir, _ = unfinished
  layout.metrics_path(workdir).write_text("")
  with pytest.raises(runs.WorkdirError, match="is not finished"):
    runs.load_run(workdir, unfinished=True)


def test_a_finished_run_has_nothing_left(tmp_path):
  report_fixture.write(tmp_path)
  assert runs.load_run(tmp_path).phases_left == 0
