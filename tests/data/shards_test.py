"""Photographs in shards: read by position, known by their checksum."""

import numpy as np
import pytest
from support import imagenet

from mnemonics_jax.data import DataError, views
from mnemonics_jax.data.images import Draws
from mnemonics_jax.data.shards import Photographs, Shards, read_index

PHOTOS = imagenet.photos()["train"]
NAMES = sorted(PHOTOS)


@pytest.fixture(scope="module")
def index(prepared_imagenet):
  return read_index(prepared_imagenet / "imagenet")


@pytest.fixture
def shards(index):
  return Shards(index.directory, index.files, 16)


def test_a_row_is_the_file_that_it_was(index, shards):
  for name, row in zip(NAMES, index.rows["train"], strict=True):
    assert shards.encoded(row) == PHOTOS[name][1]


def test_views_are_those_of_the_files(index, shards):
  rows = index.rows["train"][[7, 3, 7]]
  files = [PHOTOS[NAMES[i]][1] for i in (7, 3, 7)]
  np.testing.assert_array_equal(
    shards.views(rows),
    [views.evaluation_view(encoded, 16) for encoded in files],
  )
  draws = Draws(5, 2, np.array([7, 3, 7]))
  np.testing.assert_array_equal(
    shards.views(rows, draws),
    [
      views.training_view(encoded, 16, draws.generator(i))
      for i, encoded in enumerate(files)
    ],
  )


def test_another_file_than_the_one_that_was_written_is_refused(index, shards):
  wrong = index.rows["train"][:1].copy()
  wrong["crc"] ^= 1
  with pytest.raises(DataError, match=r"image 0 of .*its checksum is wrong"):
    shards.encoded(wrong[0])
  with pytest.raises(DataError, match="cannot be read"):
    lost = wrong.copy()
    lost["position"] = 10**6
    shards.views(lost)


def test_the_checksum_changes_with_images_order_and_size(index, shards):
  rows = index.rows["train"]

  def of(table, size=16):
    store = Photographs(shards.views, table, size)
    return store.checksum(np.arange(len(table)))

  assert of(rows) == of(rows.copy())
  assert len({of(rows), of(rows[::-1]), of(rows[1:]), of(rows, 24)}) == 4


def test_a_store_reads_the_rows_it_is_asked_for(index, shards):
  store = Photographs(shards.views, index.rows["train"], 16)
  assert store.image_shape == (16, 16, 3) and store.varies
  found = store.read(np.array([2, 0]))
  np.testing.assert_array_equal(
    found, shards.views(index.rows["train"][[2, 0]])
  )
