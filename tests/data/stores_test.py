"""The contract of every store: images that are read are used as arrays are."""

import dataclasses
import zlib

import numpy as np
import pytest
from support import imagenet
from support.data_files import save_image

from mnemonics_jax import data
from mnemonics_jax.data import images, reading, views
from mnemonics_jax.data.images import Draws, Resident, Stored
from mnemonics_jax.data.shards import Photographs, Shards, read_index
from mnemonics_jax.data.workers import Pool

SIDE = 16


def pixels(count, side=SIDE):
  shape = count, side, side, 3
  return np.random.default_rng(count).integers(0, 256, shape, np.uint8)


def resident(root, varies=False):
  del root
  return Stored(Resident(pixels(12), varies), np.arange(12))


def varying(root):
  return resident(root, varies=True)


def joined(root):
  """Arrays, stored images and no images, one after the other."""
  del root
  whole = pixels(12)
  middle = Stored(Resident(whole[:9]), np.arange(9))[2:9]
  return images.concatenate([whole[:2], middle, whole[:0], whole[9:]])


def joined_varying(root):
  return images.concatenate([varying(root)[:7], pixels(12)[7:]])


def image_files(root):
  files = [root / f"{i}.png" for i in range(12)]
  for i, file in enumerate(files):
    save_image(file, (20 * i, 255 - 20 * i, 9))
  shape = SIDE, SIDE, 3
  checksums, _ = reading.examine(files, shape)
  return Stored(reading.ImageFiles(files, shape, checksums), np.arange(12))


def photographs(root, workers=0):
  index = read_index(root / "imagenet")
  shards = Shards(index.directory, index.files, SIDE)
  look = Pool(shards, workers).views if workers else shards.views
  store = Photographs(look, index.rows["train"], SIDE)
  return Stored(store, np.arange(12))


def photographs_of_workers(root):
  return photographs(root, workers=2)


STORES = (
  resident, varying, joined, joined_varying, image_files, photographs,
  photographs_of_workers,
)  # fmt: skip
IN_MEMORY = resident, varying, image_files
"""Those that have the checksum of the same images in memory."""


@pytest.fixture(params=STORES, scope="module")
def stored(request, prepared_imagenet, tmp_path_factory):
  """Twelve images of each store, and all of them as tests see them."""
  make = request.param
  root = prepared_imagenet
  if make is image_files:
    root = tmp_path_factory.mktemp("files")
  stored = make(root)
  return make, stored, np.asarray(stored)


def test_they_are_taken_as_from_an_array(stored):
  _, stored, array = stored
  assert len(np.unique(array.reshape(12, -1), axis=0)) > 10
  for rows in (
    slice(2, 5),
    np.array([4, 0, 4, 11, 7]),
    np.arange(12) % 3 == 0,
    np.array([], int),
  ):
    view = stored[rows]
    assert view.shape == array[rows].shape and view.ndim == 4
    assert view.dtype == np.uint8 and len(view) == len(array[rows])
    np.testing.assert_array_equal(np.asarray(view), array[rows])
    np.testing.assert_array_equal(images.read(stored, rows), array[rows])
    inner = np.arange(len(view))[::-1]
    np.testing.assert_array_equal(np.asarray(view[inner]), array[rows][inner])


def test_a_training_view_depends_on_seed_epoch_and_row_alone(stored):
  """Neither on what else is read, nor on who reads; `numbers` replace rows."""
  make, stored, array = stored
  rows = np.array([5, 1, 3, 0, 4, 11])
  view = images.training_view(stored, rows, seed=2**64 - 1, epoch=2)
  for i, row in enumerate(rows):
    one = images.training_view(stored, [row], seed=2**64 - 1, epoch=2)
    np.testing.assert_array_equal(one[0], view[i])
  turned = images.training_view(
    stored[::-1], 11 - rows, seed=2**64 - 1, epoch=2, numbers=rows
  )
  np.testing.assert_array_equal(turned, view)
  varies = images.varies(stored)
  assert varies == ("varying" in make.__name__ or "photo" in make.__name__)
  assert np.array_equal(view, array[rows]) != varies
  for other in (dict(seed=8, epoch=2), dict(seed=2**64 - 1, epoch=3)):
    same = np.array_equal(view, images.training_view(stored, rows, **other))
    assert same != varies


def test_the_checksum_changes_with_images_and_their_order(stored):
  make, stored, array = stored
  found = [
    images.checksum(view)
    for view in (
      stored,
      stored[1:],
      stored[::-1],
      images.concatenate([stored, array[:1]]),
      images.concatenate([stored, array[1:2]]),
    )
  ]
  assert len(set(found)) == len(found)
  assert images.checksum(stored) == found[0]
  if make in IN_MEMORY:
    same = [images.checksum(a) for a in (array, array[1:], array[::-1])]
    assert found[:3] == same


def test_a_phase_takes_them_as_arrays(stored):
  _, stored, array = stored
  labels = np.arange(12, dtype=np.int32) % 4
  names, mean, std = ("a", "b", "c", "d"), (0.5,) * 3, (0.3,) * 3
  now = data.Dataset("mine", array, labels, array, labels, names, mean, std)
  then = dataclasses.replace(now, train_images=stored, test_images=stored)
  for one, other in zip(
    data.stream(data.verify(now), phases=2),
    data.stream(data.verify(then), phases=2),
    strict=True,
  ):
    assert isinstance(other.images, Stored)
    np.testing.assert_array_equal(one.images, np.asarray(other.images))
    np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(
      one.test_images, np.asarray(other.test_images)
    )


# What the views are.


@pytest.mark.parametrize("workers", [0, 2])
def test_views_of_photographs_are_those_of_their_files(
  prepared_imagenet, workers
):
  stored = photographs(prepared_imagenet, workers)
  photos = imagenet.photos()["train"]
  rows = np.array([7, 3, 7])
  files = [photos[sorted(photos)[row]][1] for row in rows]
  np.testing.assert_array_equal(
    np.asarray(stored[rows]),
    [views.evaluation_view(encoded, SIDE) for encoded in files],
  )
  draws = Draws(5, 2, rows)
  np.testing.assert_array_equal(
    images.training_view(stored, rows, seed=5, epoch=2),
    [
      views.training_view(encoded, SIDE, draws.generator(i))
      for i, encoded in enumerate(files)
    ],
  )
  other = dataclasses.replace(stored.store, size=24)
  assert other.checksum(rows) != stored.store.checksum(rows)


def test_images_in_memory_vary_as_those_beside_them(prepared_imagenet):
  stored, array = joined_varying(prepared_imagenet), pixels(12)
  rows = np.array([8, 2, 11])
  view = images.training_view(stored, rows, seed=7, epoch=2)
  for i, row in enumerate(rows):
    generator = Draws(7, 2, rows).generator(i)
    expected = views.random_view(array[row], generator)
    np.testing.assert_array_equal(view[i], expected)


def test_draws_of_neighbours_have_nothing_in_common():
  rows = np.arange(3)
  numbers = [Draws(0, 0, rows).generator(i).random(40) for i in range(3)]
  assert len(np.unique(numbers)) == 120


def test_arrays_stay_arrays_and_nothing_is_read_before_it_is_asked_for():
  @dataclasses.dataclass
  class Counting:
    asked: list
    image_shape = (8, 8, 3)
    varies = False

    def checksum(self, rows, start=0):
      return start + 1

    def read(self, rows, draws=None):
      self.asked += rows.tolist()
      return pixels(len(rows), side=8)

  arrays = images.concatenate([pixels(2), pixels(3)])
  assert isinstance(arrays, np.ndarray) and not images.varies(arrays)
  assert images.checksum(arrays) == images.checksum(arrays.copy())
  assert images.concatenate([arrays[:0], arrays]) is arrays
  store = Counting([])
  both = images.concatenate(
    [pixels(2, side=8), Stored(store, np.arange(10))[3:]]
  )
  assert both.shape == (9, 8, 8, 3)
  images.checksum(both)
  assert store.asked == []
  assert images.read(both, [0, 8, 3]).shape == (3, 8, 8, 3)
  assert store.asked == [9, 4]


@pytest.mark.parametrize("length", [1, 3, 192])
def test_checksums_of_parts_make_that_of_the_whole(length):
  whole = np.random.default_rng(length).integers(0, 256, (50, length), np.uint8)
  parts = np.array([zlib.crc32(part.data) for part in whole], np.uint32)
  before = zlib.crc32(b"before")
  assert images.join_checksums(parts, length, before) == zlib.crc32(
    whole.data, before
  )
  assert images.join_checksums(parts[:0], length, before) == before
