"""Exemplars as pictures, every pixel where it belongs; matrices of classes."""

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import page, pictures
from mnemonics_jax.report.draw import INK
from mnemonics_jax.runs.results import load_run


@pytest.fixture(scope="module")
def run(tmp_path_factory):
  path = tmp_path_factory.mktemp("pictures") / "run"
  return load_run(report_fixture.write(path, learned=True))


def test_tiles_are_in_reading_order_on_nothing():
  tiles = np.arange(1, 4, dtype=np.uint8)[:, None, None, None]
  tiles = np.broadcast_to(tiles, (3, 2, 4, 3))
  sheet = pictures.tile(tiles, columns=2)
  assert sheet.shape == (6, 10, 4)  # A gap of two pixels.
  np.testing.assert_array_equal(sheet[0:2, 0:4, :3], 1)
  np.testing.assert_array_equal(sheet[0:2, 6:10, :3], 2)
  np.testing.assert_array_equal(sheet[4:6, 0:4, :3], 3)
  # Where there is no image, the sheet is transparent.
  assert (sheet[..., 3] == 255).sum() == 3 * 2 * 4


@pytest.mark.parametrize(
  "size, shown",
  [((8, 8), (32, 32)), ((28, 28), (28, 28)), ((10, 5), (30, 15)),
   ((224, 112), (64, 32)), ((1000, 1), (64, 1))],
)  # fmt: skip
def test_small_images_grow_by_whole_factors_and_large_ones_shrink(size, shown):
  assert pictures.sides(*size) == shown
  assert pictures.reduced(*size) == (shown if max(size) > 64 else size)


def test_browsers_show_pixels_in_whole_numbers():
  assert [pictures.zoom(s, s) for s in (8, 28, 32, 64)] == [7, 2, 2, 1]


def test_enlarged_pixels_stay_themselves():
  small = (
    np.random.RandomState(0).randint(0, 256, (2, 3, 3, 3)).astype(np.uint8)
  )
  large = pictures.resize(small, (12, 12))
  np.testing.assert_array_equal(large, small.repeat(4, 1).repeat(4, 2))
  grey = pictures.resize(small[..., :1], (3, 3))
  np.testing.assert_array_equal(grey, small[..., :1].repeat(3, -1))


def test_reduced_images_are_averaged():
  checker = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)
  small = pictures.resize(checker[None, :, :, None].repeat(3, -1), (8, 8))
  assert abs(small[0, 2:6, 2:6].astype(int) - 127.5).max() < 6


def test_the_memory_is_that_of_the_first_seed_by_class(tmp_path):
  path = report_fixture.write(tmp_path / "run", groups=(2, 1), slots=3)
  found = pictures.memory_images(load_run(path))
  assert [(c.index, c.phase, c.count) for c in found] == [
    (0, 0, 3), (1, 0, 3), (2, 1, 3)
  ]  # fmt: skip
  with np.load(path / "seed_0" / "phase_01.npz") as file:
    for entry, images in zip(found, file["memory/images"], strict=True):
      np.testing.assert_array_equal(entry.images, images)


def test_every_class_of_the_memory_stands_below_its_name(run):
  (drawing,) = pictures.memory_sheet(run)
  (axes,) = drawing.figure.axes
  sheet = np.asarray(axes.images[0].get_array())
  for entry, text in zip(pictures.memory_images(run), axes.texts, strict=True):
    x, y = text.get_position()
    found = sheet[y + 5 :, x:][:32:4, :32:4]
    np.testing.assert_array_equal(found[..., :3], entry.images[0])
    assert text.get_text().endswith(f"(phase {entry.phase})")


def test_of_many_classes_some_are_shown(tmp_path):
  options = dict(groups=(100, 60), seeds=(0,), size=2)
  run = load_run(report_fixture.write(tmp_path / "run", **options))
  found = [entry.index for entry in pictures.memory_images(run)]
  assert len(found) == 120 and (found[0], found[-1]) == (0, 159)


def test_without_arrays_there_is_nothing_to_show(tmp_path):
  path = report_fixture.write(tmp_path / "run", groups=(1, 1), seeds=(0,))
  for file in path.glob("seed_*/*.npz"):
    file.unlink()
  run = load_run(path)
  assert pictures.memory_images(run) == [] == list(pictures.memory_sheet(run))
  assert [*pictures.confusion_matrices(run)] == []
  assert [*pictures.change_sheets(run)] == []


def test_difference_is_signed_and_grey_where_nothing_changed():
  before = np.array([0, 255, 7, 100, 100], np.uint8)
  after = np.array([0, 255, 7, 102, 97], np.uint8)
  found = pictures.difference(before, after, 20)
  assert found.tolist() == [128, 128, 128, 168, 68]
  assert pictures.difference(before, after, 100).tolist()[3:] == [255, 0]


@pytest.mark.parametrize(
  ("moves", "gain"),
  [
    ([2] * 100, 50),
    ([0] * 200, 1),
    ([0] * 199 + [1], 100),  # Too few for a percentile: the largest counts.
    ([4] * 199 + [200], 20),  # One in 200 may be cut off.
    ([200] * 100, 1),
  ],
)
def test_amplification_fits_the_range(moves, gain):
  before = np.zeros((len(moves), 1, 1, 1), np.uint8)
  after = np.array(moves, np.uint8).reshape(before.shape)
  change = pictures.Change(0, np.zeros(len(moves), int), before, after)
  assert pictures.amplification([change]) == gain


def test_sheets_show_before_after_and_the_change(run):
  drawings = {d.name: d for d in pictures.change_sheets(run)}
  drawing = drawings["exemplars_adjusted_01"]
  (axes,) = drawing.figure.axes
  words = [text.get_text() for text in axes.texts]
  assert words[:4] == ["phase 1", "before", "after", "×50"]
  assert words[-3:] == ["<script>alert(1…", "price $x_1", "cost $y^2$ & üb…"]
  pixels = np.asarray(axes.images[0].get_array())
  count = lambda *color: int((pixels == [*color, 255]).all(-1).sum())
  # Six images of 32 by 32 pixels: a quarter gained 2 levels of red.
  assert count(128, 128, 128) == 6 * 32 * 32 * 3 // 4
  assert count(228, 128, 128) == 6 * 32 * 32 // 4
  with np.load(run.path / "seed_0" / "phase_01.npz") as file:
    stored = file["changed/adjust/before"], file["changed/adjust/after"]
  # The first class's first image, four pixels for each of its own.
  opaque = np.argwhere(pixels[..., 3] == 255).min(axis=0)
  for place, images in enumerate(stored):
    y, x = opaque[0], opaque[1] + place * 34
    shown = pixels[y : y + 32 : 4, x : x + 32 : 4, :3]
    np.testing.assert_array_equal(shown, images[0])
  # Words stand over the middle of each third, names beside their row.
  over = [text.get_position()[0] - opaque[1] for text in axes.texts[1:4]]
  assert over == [16, 34 + 16, 68 + 16]
  assert axes.texts[-3].get_position() == (0, opaque[0] + 16)
  # 2 levels in a quarter of one of three channels.
  assert drawing.rows[0] == [*(0, report_fixture.SCRIPT_NAME, 0, 2 / 12, 2, 50)]


def test_many_phases_are_thinned_on_the_page(tmp_path, monkeypatch):
  monkeypatch.setattr(page, "DRAWERS", (pictures.change_sheets,))
  path = report_fixture.write(
    tmp_path / "run", groups=[1] * 9, seeds=(0,), size=2, learned=True
  )
  text = report.build([path]).read_text(encoding="utf-8")
  assert "Learning exemplars</h2>" in text and "50 times amplified" in text
  assert "6 of 9 phases" in text
  assert 'href="figures/exemplars_learned_00.csv"' in text
  assert "exemplars_learned_01.csv" not in text
  assert "exemplars_learned_08.csv" in text
  assert (path / "figures" / "exemplars_learned_01.png").exists()


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
  white = [t.get_text() for t in axes.texts if t.get_color() == "white"]
  assert white == ["89.0"]  # Above 60 % of the way from 60 to 100.
  assert (axes.images[0].norm.vmin, axes.images[0].norm.vmax) == (60, 100)
  assert [t.get_text() for t in axes.texts if t.get_text()] == [
    *("89.0", "78.0", "79.0", "67.0", "68.0", "69.0")
  ]


def test_confusions_are_counted_over_all_seeds(run):
  head, nme = pictures.confusion_matrices(run)
  counts = np.array([row[2:] for row in head.rows])
  one, other = (report_fixture.confusion((3, 1, 1), n) for n in (15, 14))
  np.testing.assert_array_equal(counts, one + other)
  np.testing.assert_array_equal(
    np.array([row[2:] for row in nme.rows]), (one + other)[::-1, ::-1]
  )
  assert list(head.header[2:]) == run.results["class_names"]
  # Shares of 40 images are drawn, and written where there are any.
  (axes, _) = head.figure.axes
  np.testing.assert_allclose(axes.images[0].get_array(), 2.5 * counts)
  # Phases end after three and after four classes.
  across = [list(line.get_ydata()) for line in axes.lines[::2]]
  assert across == [[2.5, 2.5], [3.5, 3.5]]
  words = [text.get_text() for text in axes.texts]
  assert words.count("72") + words.count("28") == 10
  # White on dark cells.
  assert {text.get_text(): text.get_color() for text in axes.texts} == {
    "": INK,
    "28": INK,
    "72": "white",
  }
  assert words.count("") == 15


def test_confusions_tell_of_classes_that_are_never_predicted(run, monkeypatch):
  def told(counts):
    arrays = lambda *_: {"confusion/final/head": np.array(counts)}
    monkeypatch.setattr(type(run), "arrays", arrays)
    (drawing,) = pictures.confusion_matrices(run)
    return drawing.finding

  assert told(9 * np.eye(5, dtype=int)) == (
    "No test image is taken for another class."
  )
  counts = 9 * np.eye(5, dtype=int)
  counts[3:] = [9, 0, 0, 0, 0]
  assert told(counts).endswith(" Two classes are never predicted.")
  counts[3] = [0, 0, 0, 9, 0]
  assert told(counts).endswith(" One class is never predicted.")
