"""Figures: the CSV beside each picture holds what the data say."""

import csv

import numpy as np
from PIL import Image
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import images
from mnemonics_jax.runs.finished import load_run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  path = report_fixture.write(tmp_path_factory.mktemp("figures") / "run")
  report.write_figures(path)
  return path


def rows(workdir, name):
  with open(workdir / "figures" / f"{name}.csv", encoding="utf-8") as file:
    return list(csv.DictReader(file))


def test_every_figure_has_a_picture_and_numbers(workdir):
  names = {path.stem for path in (workdir / "figures").glob("*.png")}
  assert names == {path.stem for path in (workdir / "figures").glob("*.csv")}
  assert names == {
    "phase_curve",
    "moments",
    "accuracy_matrix_head",
    "accuracy_matrix_nme",
    "confusion_head",
    "confusion_nme",
    "training_curves",
    "memory",
  }
  for path in (workdir / "figures").glob("*.png"):
    with Image.open(path) as picture:
      low, high = picture.convert("L").getextrema()
    assert low < 128 < high


def test_phase_curve(workdir):
  found = rows(workdir, "phase_curve")
  assert len(found) == 6
  assert found[1] == {
    "readout": "head",
    "phase": "1",
    "classes_seen": "4",
    "mean_percent": "79",
    "ci95_percent": "12.706",
    "seed_0_percent": "80",
    "seed_1_percent": "78",
  }


def test_accuracy_matrix_is_the_mean_over_seeds(workdir):
  found = rows(workdir, "accuracy_matrix_head")
  assert len(found) == 6  # The lower triangle of 3 phases.
  # After phase 2 the base classes have 0.69 - 2 * 0.01 on average.
  (cell,) = (
    r for r in found if r["after_phase"] == "2" and r["classes_of_phase"] == "0"
  )
  assert cell["accuracy_percent"] == "67"
  assert cell["classes"] == "3"


def test_confusion_is_the_sum_over_seeds(workdir):
  found = rows(workdir, "confusion_head")
  # Seeds have 15 and 14 of 20 right, the rest goes to the next class.
  assert found[0]["true_class"] == report_fixture.SCRIPT_NAME
  assert list(found[3].values())[2:] == ["0", "0", "0", "29", "11"]


def test_training_curve_positions_run_through_all_stages(workdir):
  found = [r for r in rows(workdir, "training_curves") if r["seed"] == "0"]
  # 3 phases with 3 epochs of training and 3 of fine-tune.
  assert [int(r["position"]) for r in found] == list(range(1, 19))
  assert found[7]["loss"] == f"{2.0 / (1 + 1 + 0.2):.6g}"


def test_memory_counts(workdir):
  found = rows(workdir, "memory")
  assert [r["phase"] for r in found] == ["0", "0", "0", "1", "2"]
  assert {r["images"] for r in found} == {"4"}


def test_tiles_show_pixels_unchanged():
  pictures = np.arange(3 * 2 * 2 * 3, dtype=np.uint8).reshape(3, 2, 2, 3)
  sheet = images.tile(pictures, columns=2)
  # Two columns and two rows of 2 pixels with a gap of 2; the last is empty.
  assert sheet.shape == (6, 6, 4)
  np.testing.assert_array_equal(sheet[0:2, 4:6, :3], pictures[1])
  np.testing.assert_array_equal(sheet[4:6, 0:2, :3], pictures[2])
  assert sheet[..., 3].sum() == 255 * 3 * 4


def test_small_images_grow_and_large_ones_shrink(workdir):
  entry = images.memory_images(load_run(workdir))[0]
  assert entry.images.shape == (4, 32, 32, 3)
  with np.load(workdir / "seed_0" / "phase_02.npz") as file:
    original = file["memory/images"][0]
  np.testing.assert_array_equal(entry.images[:, ::4, ::4], original)
  assert images.sides(224, 112) == (64, 32)
  assert images.sides(8, 8) == (32, 32)


def test_many_classes_and_phases(tmp_path):
  path = report_fixture.write(
    tmp_path / "run",
    groups=(50, *[2] * 25),
    seeds=(0,),
    size=32,
    slots=20,
    epochs=2,
  )
  report.write_figures(path)
  found = rows(path, "memory")
  assert len(found) == 100
  assert {r["shown"] for r in found} == {"10"}
  assert len(rows(path, "accuracy_matrix_nme")) == 26 * 27 // 2


def test_a_run_without_arrays_and_epochs_still_has_curves(tmp_path):
  path = report_fixture.write(tmp_path / "run", seeds=(0,))
  (path / "metrics.jsonl").unlink()
  for file in path.glob("seed_*/*.npz"):
    file.unlink()
  names = [figure.stem for figure in report.write_figures(path)]
  assert names == [
    *("phase_curve", "moments"),
    *("accuracy_matrix_head", "accuracy_matrix_nme"),
  ]
