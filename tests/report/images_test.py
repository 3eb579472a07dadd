"""Exemplars as tiles: every pixel where it belongs."""

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax.report import pictures
from mnemonics_jax.runs.results import load_run


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
    first = file["memory/images"][0, 0]
  shown = found[0].images[0]
  factor = len(shown) // len(first)
  np.testing.assert_array_equal(shown[::factor, ::factor], first)


def test_a_run_without_arrays_has_no_memory_to_show(tmp_path):
  path = report_fixture.write(tmp_path / "run", groups=(1, 1), seeds=(0,))
  for file in path.glob("seed_*/*.npz"):
    file.unlink()
  run = load_run(path)
  assert pictures.memory_images(run) == [] == list(pictures.memory_sheet(run))
