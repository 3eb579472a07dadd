"""A member is tested by registration alone, and one that breaks a promise fails.

Pytest runs each contract in a new process, where a plugin has registered toys.
"""

import os
from pathlib import Path
import subprocess
import sys
from xml.etree import ElementTree

from contracts.toy_entries import TOYS
import pytest

ROOT = Path(__file__).parents[2]


def run_with_toys(*arguments):
  return subprocess.run(
    [
      *(sys.executable, "-m", "pytest", "-q", "-n", "0"),
      *("-p", "contracts.toy_entries", "-p", "no:cacheprovider", *arguments),
    ],
    cwd=ROOT,
    env=os.environ | {"PYTHONPATH": f"{ROOT / 'tests'}:{ROOT}"},
    capture_output=True,
    text=True,
  )


def outcomes(file, directory):
  """Each test of a toy with its result: passed, skipped or failure."""
  report, place = directory / "report.xml", f"tests/contracts/{file}"
  done = run_with_toys("-k", "toy", f"--junitxml={report}", place)
  assert done.returncode == 1, done.stdout + done.stderr  # Tests have failed.
  for case in ElementTree.parse(report).iter("testcase"):
    test, _, ids = case.attrib["name"].rstrip("]").partition("[")
    result = "passed" if len(case) == 0 else case[0].tag
    yield from (
      (toy, test, result) for toy in ids.split("-") if toy in TOYS[file]
    )


@pytest.mark.parametrize("file", TOYS)
def test_a_toy_passes_and_a_broken_one_fails(file, tmp_path):
  found = {*outcomes(file, tmp_path)}
  for toy, (_, fails) in TOYS[file].items():
    if fails:
      assert (toy, fails, "failure") in found, sorted(found)
    else:
      results = {(test, result) for name, test, result in found if name == toy}
      assert len(results) >= 4, results
      assert {result for _, result in results} <= {"passed", "skipped"}, results


def test_older_runs_tables_and_learners_need_no_new_read_out():
  """What they measured is shown; nothing asks for what they have not."""
  file = "tests/museum_test.py::test_"
  done = run_with_toys(
    f"{file}a_finished_run_is_finished_and_has_its_page",
    f"{file}a_table_knows_its_cells",
    f"{file}what_was_learned_predicts_as_before",
  )
  assert done.returncode == 0, done.stdout + done.stderr
