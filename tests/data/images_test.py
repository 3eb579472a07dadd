"""Images in memory and images that are read are used in one way."""

import dataclasses
import zlib

import numpy as np
import pytest

from mnemonics_jax import data
from mnemonics_jax.data import images, views
from mnemonics_jax.data.images import Draws, Resident, Stored


def pixels(count, side=8):
  shape = count, side, side, 3
  return np.random.default_rng(count).integers(0, 256, shape, np.uint8)


def stored(array, **options):
  return Stored(Resident(array, **options), np.arange(len(array)))


@pytest.mark.parametrize(
  "rows",
  [
    slice(2, 5),
    np.array([4, 0, 4]),
    np.array([True, False, False, True, True, False]),
    np.array([], int),
  ],
)
def test_rows_are_taken_as_from_an_array(rows):
  array = pixels(6)
  view = stored(array)[rows]
  assert view.shape == array[rows].shape and view.ndim == 4
  assert view.dtype == np.uint8 and len(view) == len(array[rows])
  np.testing.assert_array_equal(np.asarray(view), array[rows])
  inner = np.arange(len(view))[::-1]
  np.testing.assert_array_equal(np.asarray(view[inner]), array[rows][inner])


def test_nothing_is_read_before_it_is_asked_for():
  @dataclasses.dataclass
  class Counting:
    asked: list
    image_shape = (8, 8, 3)
    varies = False

    def checksum(self, rows, start=0):
      return start + 1

    def read(self, rows, draws=None):
      self.asked += rows.tolist()
      return pixels(len(rows))

  store = Counting([])
  both = images.concatenate([pixels(2), Stored(store, np.arange(10))[3:]])
  assert both.shape == (9, 8, 8, 3)
  images.checksum(both)
  assert store.asked == []
  assert images.read(both, [0, 8, 3]).shape == (3, 8, 8, 3)
  assert store.asked == [9, 4]


def test_together_they_are_read_in_the_order_that_is_asked_for():
  first, second, third = pixels(2), pixels(3), pixels(4)
  both = images.concatenate([first, stored(second), third[:0], third])
  whole = np.concatenate([first, second, third])
  rows = np.array([8, 0, 3, 2, 8, 4, 1])
  np.testing.assert_array_equal(images.read(both, rows), whole[rows])
  view = images.training_view(both, rows, seed=1, epoch=0)
  np.testing.assert_array_equal(view, whole[rows])  # None of them varies.
  arrays = images.concatenate([first, third])
  assert isinstance(arrays, np.ndarray) and not images.varies(arrays)
  assert images.concatenate([first[:0], stored(second)]).shape[0] == 3


def test_a_training_view_depends_on_seed_epoch_and_row_alone():
  array = pixels(6, side=16)
  both = images.concatenate([stored(array[:4], varies=True), array[4:]])
  assert images.varies(both)
  rows = np.array([5, 1, 3, 0, 4, 2])
  view = images.training_view(both, rows, seed=7, epoch=2)
  for i, row in enumerate(rows):
    one = images.training_view(both, [row], seed=7, epoch=2)
    np.testing.assert_array_equal(one[0], view[i])
    # Old images in memory vary as the new ones do.
    expected = views.random_view(array[row], Draws(7, 2, rows).generator(i))
    np.testing.assert_array_equal(view[i], expected)
  for other in (dict(seed=8, epoch=2), dict(seed=7, epoch=3)):
    assert not np.array_equal(view, images.training_view(both, rows, **other))


def test_draws_of_neighbours_have_nothing_in_common():
  rows = np.arange(3)
  numbers = [Draws(0, 0, rows).generator(i).random(40) for i in range(3)]
  assert len(np.unique(numbers)) == 120


def test_the_checksum_changes_with_rows_and_images():
  array = pixels(6)
  found = [
    images.checksum(view)
    for view in (
      stored(array),
      stored(array)[1:],
      stored(array)[::-1],
      images.concatenate([stored(array), array[:1]]),
      images.concatenate([stored(array), array[1:2]]),
    )
  ]
  assert len(set(found)) == len(found)
  assert images.checksum(array) == images.checksum(array.copy())
  # What is in memory has the same one, wherever it is.
  assert found[:3] == [
    images.checksum(same) for same in (array, array[1:], array[::-1])
  ]


@pytest.mark.parametrize("length", [1, 3, 192])
def test_checksums_of_parts_make_that_of_the_whole(length):
  whole = np.random.default_rng(length).integers(0, 256, (50, length), np.uint8)
  parts = np.array([zlib.crc32(part.data) for part in whole], np.uint32)
  before = zlib.crc32(b"before")
  assert images.join_checksums(parts, length, before) == zlib.crc32(
    whole.data, before
  )
  assert images.join_checksums(parts[:0], length, before) == before


def test_a_data_set_may_be_read_later():
  digits = data.load("digits")
  later = dataclasses.replace(
    digits,
    train_images=stored(digits.train_images),
    test_images=stored(digits.test_images),
  )
  data.verify(later)
  for now, then in zip(
    data.stream(digits, phases=5), data.stream(later, phases=5), strict=True
  ):
    assert isinstance(then.images, Stored)
    np.testing.assert_array_equal(now.images, np.asarray(then.images))
    np.testing.assert_array_equal(now.labels, then.labels)
    np.testing.assert_array_equal(now.test_images, np.asarray(then.test_images))
