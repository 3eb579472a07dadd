"""Figures: the CSV beside each picture holds what the data say."""

import csv

from matplotlib.figure import Figure
import numpy as np
from PIL import Image
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import draw, pictures
from mnemonics_jax.report.draw import Drawing
from mnemonics_jax.runs.results import load_run


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
  tiles = np.arange(3 * 2 * 2 * 3, dtype=np.uint8).reshape(3, 2, 2, 3)
  sheet = pictures.tile(tiles, columns=2)
  # Two columns and two rows of 2 pixels with a gap of 2; the last is empty.
  assert sheet.shape == (6, 6, 4)
  np.testing.assert_array_equal(sheet[0:2, 4:6, :3], tiles[1])
  np.testing.assert_array_equal(sheet[4:6, 0:2, :3], tiles[2])
  assert sheet[..., 3].sum() == 255 * 3 * 4


def test_small_images_grow_and_large_ones_shrink(workdir):
  with np.load(workdir / "seed_0" / "phase_02.npz") as file:
    original = file["memory/images"]
  for entry, tiles in zip(
    pictures.memory_images(load_run(workdir)), original, strict=True
  ):
    np.testing.assert_array_equal(entry.images, tiles)
  grown = pictures.resize(original[0], pictures.sides(8, 8))
  assert grown.shape == (4, 32, 32, 3)
  np.testing.assert_array_equal(grown[:, ::4, ::4], original[0])
  assert pictures.sides(224, 112) == pictures.reduced(224, 112) == (64, 32)
  assert pictures.reduced(8, 8) == (8, 8)
  # A browser shows pixels in whole numbers.
  assert [pictures.zoom(s, s) for s in (8, 28, 32, 64)] == [7, 2, 2, 1]


def pixels(path):
  with Image.open(path) as picture:
    return np.asarray(picture.convert("RGB")).astype(int)


def test_plots_lose_nothing_to_the_eye_and_exemplars_nothing_at_all(tmp_path):
  # 128 by 128 pixels of as many colours, a pixel of the picture each.
  noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), np.uint8)
  sizes = {}
  for exact in (True, False):
    figure = Figure(figsize=(1.28, 1.28), dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.imshow(noise, interpolation="nearest")
    item = Drawing("noise", figure, [], [], "Noise: ± “1”.", exact)
    path = draw.save(item, tmp_path)
    sizes[exact] = path.stat().st_size
    assert draw.finding(path) == "Noise: ± “1”."
    whole = pixels(path)
    inner = whole[8:-8, 8:-8][:128, :128]
    assert (np.abs(inner - noise[: len(inner)]) == 0).all() == exact
  assert sizes[False] < sizes[True] / 2


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


def test_every_picture_says_what_it_shows(workdir):
  shows = {
    path.stem: draw.finding(path)
    for path in (workdir / "figures").glob("*.png")
  }
  assert shows["phase_curve"] == (
    "From 3 to 5 classes, head falls from 89.0\u00a0% to 69.0\u00a0% and nme falls"
    " from 84.0\u00a0% to 64.0\u00a0%."
  )
  assert shows["accuracy_matrix_head"] == (
    "On the classes of phase 0, head has 89.0\u00a0% when they are new and"
    " 67.0\u00a0% at the end."
  )
  # 11 of 40 images of each class are taken for the next one.
  assert shows["confusion_head"] == (
    f"Most frequent confusion: 28\u00a0% of {report_fixture.SCRIPT_NAME[:17]}… are"
    " taken for price $x_1."
  )
  assert shows["training_curves"] == (
    "Training of phase 2 ends with a loss of 0.588 and 83.3\u00a0% of the training"
    " images right."
  )
  assert shows["moments"].startswith(
    "After the last phase head has 67.0\u00a0% on old classes and 72.0\u00a0% on new"
    " ones (on old ones 63.0\u00a0% before the fine-tune) and nme has"
  )
  assert shows["memory"] == "20 exemplars of 5 classes."


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
