"""Matrices: means over seeds, sums of counts."""

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax.report import pictures
from mnemonics_jax.runs.results import load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  path = tmp_path_factory.mktemp("matrices") / "run"
  return load_run(report_fixture.write(path, groups=(3, 1, 1)))


def test_accuracy_is_the_mean_over_seeds_below_the_diagonal(run):
  head, nme = pictures.accuracy_matrices(run)
  assert (head.name, nme.name) == (
    "accuracy_matrix_head",
    "accuracy_matrix_nme",
  )
  found = {(after, came): (n, float(v)) for after, came, n, v in head.rows}
  assert found.keys() == {(i, j) for i in range(3) for j in range(i + 1)}
  # Seeds have 0.9 and 0.88, less 0.1 a phase and 0.01 for each phase of age.
  assert found[0, 0] == (3, pytest.approx(89))
  assert found[2, 0] == (3, pytest.approx(67))
  assert found[2, 2] == (1, pytest.approx(69))
  (axes, _) = head.figure.axes  # And the bar that explains its colours.
  shown = axes.images[0].get_array()
  assert np.isnan(np.ma.filled(shown, np.nan)[0, 1])


def test_confusions_are_counted_over_all_seeds(run):
  head, nme = pictures.confusion_matrices(run)
  counts = np.array([row[2:] for row in head.rows])
  one, other = (report_fixture.confusion((3, 1, 1), n) for n in (15, 14))
  np.testing.assert_array_equal(counts, one + other)
  np.testing.assert_array_equal(
    np.array([row[2:] for row in nme.rows]), (one + other)[::-1, ::-1]
  )
  assert list(head.header[2:]) == run.results["class_names"]


def test_without_arrays_there_is_nothing_to_count(tmp_path):
  path = report_fixture.write(tmp_path / "run", groups=(1, 1), seeds=(0,))
  for file in path.glob("seed_*/*.npz"):
    file.unlink()
  assert list(pictures.confusion_matrices(load_run(path))) == []
