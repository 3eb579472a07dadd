"""From counts to records, by hand; and records have the fields of the files."""

import math

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax import report, runs
from mnemonics_jax.runs import layout
from mnemonics_jax.runs import results as records
from mnemonics_jax.runs.layout import mismatch
from mnemonics_jax.types import PhaseResult

SPLIT = (2, 1)


def result(phase, head, nme, trained=None):
  """A phase whose read-outs have these confusion counts."""
  final = {"head": np.array(head), "nme": np.array(nme)}
  none = np.zeros((0, 0))
  return PhaseResult(
    phase=phase,
    classes_seen=sum(SPLIT[: phase + 1]),
    confusion={"trained": trained or final, "final": final},
    memory_images=4,
    memory_bytes=768,
    diagnostics={"exemplars": {"loss": [0.5, 0.25]}},
    changed={},
    test_features=(none, none),
    exemplar_features=(none, none),
  )


BASE = result(0, [[4, 0], [1, 3]], [[4, 0], [0, 4]])
NEXT = result(
  1,
  [[2, 0, 2], [1, 1, 2], [0, 0, 2]],
  [[3, 1, 0], [0, 4, 0], [1, 0, 1]],
)


def test_the_base_phase():
  record = records.phase_record(BASE, SPLIT)
  assert record["phase"] == 0 and record["classes_seen"] == 2
  assert record["accuracy"] == {"head": 7 / 8, "nme": 1.0}
  assert record["by_group"] == {"head": [7 / 8], "nme": [1.0]}
  # Nothing is old yet.
  expected = {"all": 7 / 8, "old": None, "new": 7 / 8}
  assert record["moments"]["final"]["head"] == expected
  assert record["memory"] == {"images": 4, "bytes": 768}
  assert record["diagnostics"] == {"exemplars": {"loss": [0.5, 0.25]}}


def test_old_and_new_classes_of_a_later_phase():
  record = records.phase_record(NEXT, SPLIT)
  assert record["accuracy"] == {"head": 5 / 10, "nme": 8 / 10}
  assert record["by_group"] == {"head": [3 / 8, 1.0], "nme": [7 / 8, 1 / 2]}
  expected = {"all": 5 / 10, "old": 3 / 8, "new": 1.0}
  assert record["moments"]["final"]["head"] == expected


def test_moments_are_kept_apart():
  before = {name: np.eye(3, dtype=int) for name in ("head", "nme")}
  record = records.phase_record(NEXT._replace(
    confusion={"trained": before, "final": NEXT.confusion["final"]}
  ), SPLIT)  # fmt: skip
  assert record["moments"]["trained"]["head"]["all"] == 1.0
  assert record["moments"]["final"]["head"]["all"] == 0.5
  assert record["accuracy"]["head"] == 0.5


def _run(seed=0):
  phases = [records.phase_record(r, SPLIT) for r in (BASE, NEXT)]
  return records.run_record(seed, phases)


def test_a_seed():
  run = _run(3)
  assert run["seed"] == 3 and len(run["phases"]) == 2
  assert run["average"] == pytest.approx({"head": 0.6875, "nme": 0.9})
  # Of the base classes, 7 of 8 were right, and 3 of 8 are.
  assert run["forgetting"] == pytest.approx({"head": 0.5, "nme": 0.125})


def test_a_summary_of_two_seeds():
  runs = [_run(0), _run(1)]
  runs[1]["average"] = {"head": 0.7075, "nme": 0.9}
  summary = records.summary(runs)
  assert summary["head"]["average"]["mean"] == pytest.approx(0.6975)
  # Student's t for two seeds is 12.706; the standard error is half the gap.
  assert summary["head"]["average"]["ci95"] == pytest.approx(0.12706, rel=1e-4)
  assert summary["nme"]["average"] == pytest.approx({"mean": 0.9, "ci95": 0.0})
  means = [estimate["mean"] for estimate in summary["head"]["per_phase"]]
  assert means == pytest.approx([7 / 8, 0.5])


def test_a_read_out_that_is_added_later_waits_for_a_run_of_its_own():
  """Phases and seeds that were measured before lack it."""
  later = NEXT._replace(
    confusion={
      moment: counts | {"more": np.eye(3, dtype=int)}
      for moment, counts in NEXT.confusion.items()
    }
  )
  phases = [records.phase_record(r, SPLIT) for r in (BASE, later)]
  assert phases[1]["accuracy"] == {"head": 0.5, "nme": 0.8, "more": 1.0}
  run = records.run_record(0, phases)
  assert list(run["average"]) == list(run["forgetting"]) == ["head", "nme"]
  other = _run() | {"average": {"head": 0.5, "more": 1.0}}
  assert list(records.summary([run, other])) == ["head"]


def test_one_seed_has_no_interval():
  assert records.summary([_run()])["head"]["forgetting"]["ci95"] is None


def test_records_have_the_fields_of_the_files():
  phase = records.phase_record(NEXT, SPLIT)
  assert phase.keys() == layout.PHASE.keys() - {"classes_tested"}
  assert not mismatch(phase, layout.PHASE)
  assert _run().keys() == layout.SEED_RESULT.keys()
  assert not mismatch(_run(), layout.SEED_RESULT)
  summary = records.summary([_run()])
  assert not mismatch(summary, layout.RESULTS["summary"])


# Of the classes of phase 0, the second has no test images; or neither has.
_COUNTS = [[2, 0, 2], [0, 0, 0], [0, 0, 2]]
PARTLY = result(1, _COUNTS, _COUNTS)
NEW_ONLY = result(
  1, [[0, 0, 0], [0, 0, 0], [1, 0, 3]], [[0, 0, 0], [0, 0, 0], [0, 0, 4]]
)


def test_what_was_not_tested_is_null():
  phase = records.phase_record(NEW_ONLY, SPLIT)
  assert phase["classes_seen"] == 3 and phase["classes_tested"] == 1
  assert phase["accuracy"] == {"head": 3 / 4, "nme": 1.0}
  assert phase["by_group"] == {"head": [None, 3 / 4], "nme": [None, 1.0]}
  moment = {"all": 3 / 4, "old": None, "new": 3 / 4}
  assert phase["moments"]["final"]["head"] == moment
  assert not mismatch(phase, layout.PHASE)


def test_phases_that_tested_other_classes_are_not_compared():
  base, later = (records.phase_record(r, SPLIT) for r in (BASE, PARTLY))
  assert later["classes_tested"] == 2
  assert later["by_group"]["head"] == [2 / 4, 1.0]
  run = records.run_record(0, [base, later])
  assert run["average"] == {"head": 7 / 8, "nme": 1.0}
  assert run["forgetting"] == {"head": None, "nme": None}
  assert not mismatch(run, layout.SEED_RESULT)
  summary = records.summary([run, run])
  assert summary["head"]["forgetting"] == {"mean": None, "ci95": None}
  assert summary["head"]["per_phase"][1]["mean"] == 4 / 6
  assert not mismatch(summary, layout.RESULTS["summary"])


def test_numbers_are_plain():
  """JSON has no NumPy numbers, and no NaN."""

  def leaves(value):
    if isinstance(value, dict):
      value = [*value.values()]
    if isinstance(value, list):
      return [leaf for inner in value for leaf in leaves(inner)]
    return [value]

  for leaf in leaves(_run()):
    assert leaf is None or type(leaf) in (int, float)
    assert leaf is None or math.isfinite(leaf)


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
