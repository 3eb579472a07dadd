"""Images that stream to the device train as those that are there, to the bit."""

import dataclasses
import itertools
import threading

import jax
import numpy as np
import pytest
from support import journals, training
from support.training import IMAGES, LABELS, MODEL, SCHEDULE

from mnemonics_jax import UserError
from mnemonics_jax.data.images import Resident, Stored, training_view
from mnemonics_jax.nn.augment import CropFlip
from mnemonics_jax.parallel import prefetch
from mnemonics_jax.phase import (
  Pool,
  Schedule,
  Stage,
  Streamed,
  epoch_order,
  feed,
  make_feed,
)
from mnemonics_jax.phase.feed import make_pool

STEP = 8 * 8 * 8 * 3  # Bytes: eight images.


def _stored(images=IMAGES, **options):
  return Stored(Resident(images, **options), np.arange(len(images)))


def _streamed(images=None):
  images = _stored() if images is None else images
  return Streamed(images, LABELS, capacity=32)


@pytest.fixture
def two_steps(monkeypatch):
  """Blocks of two of the three steps of an epoch."""
  monkeypatch.setattr(feed, "BYTES", 2 * STEP)


@pytest.fixture(scope="module")
def start():
  return MODEL.init(jax.random.key(0))


@pytest.fixture(scope="module")
def trained(start):
  return training.fit(start, augment=CropFlip(2))


@pytest.mark.parametrize("images", [IMAGES, _stored()], ids=["host", "disk"])
def test_streamed_images_train_as_resident_ones(start, trained, images):
  """20 images in batches of 8: the last batch of each epoch wraps around."""
  again = training.fit(start, feed=_streamed(images), augment=CropFlip(2))
  training.assert_equal(again, trained)


def test_both_go_on_from_every_step(start, trained, two_steps, monkeypatch):
  """In the middle of blocks, too, and they may take turns."""
  monkeypatch.setattr(prefetch, "SECONDS_PER_CALL", 0.0)
  feeds = itertools.cycle([_streamed(), _streamed(), training.pool()])
  again, journal = journals.in_pieces(
    lambda journal: training.fit(
      start,
      feed=next(feeds),
      augment=CropFlip(2),
      stage=Stage(journal=journal),
    )
  )
  training.assert_close(again, trained)
  assert len(journal.offers) == 6  # Two epochs of three steps.
  assert threading.active_count() == 1
  for one in (_streamed(), training.pool()):
    whole = training.fit(start, feed=one, augment=CropFlip(2))
    training.assert_equal(again, whole)


def _rows(images):
  return [image.tobytes() for image in np.asarray(images).reshape(-1, 192)]


def test_a_block_has_the_rows_of_its_steps_and_no_more(two_steps):
  key = jax.random.key(1)
  found = list(_streamed().blocks(key, SCHEDULE))
  assert [stop for _, stop in found] == [2, 3, 2, 3]
  assert [int(block.first) for block, _ in found] == [0, 2, 0, 2]
  order = np.asarray(epoch_order(jax.random.fold_in(key, 0), LABELS, 20))
  # 24 images of 20: the last batch begins again with the first ones.
  expected = np.resize(order, 24).reshape(3, 8)
  for step, (number, at) in enumerate([(0, 0), (0, 1), (1, 0)]):
    block, _ = found[number]
    assert _rows(block.images[at]) == _rows(IMAGES[expected[step]])
    np.testing.assert_array_equal(block.labels[at], LABELS[expected[step]])
  assert not found[1][0].images[1].any()  # Nothing is read for it.


@pytest.mark.parametrize("start", [(0, 0), (0, 1), (1, 2)])
def test_a_pool_gives_the_same_blocks(two_steps, start):
  key = jax.random.key(1)
  pairs = zip(
    _streamed().blocks(key, SCHEDULE, *start),
    training.pool().blocks(key, SCHEDULE, *start),
    strict=True,
  )
  for (streamed, stop), (pooled, same) in pairs:
    assert stop == same and streamed.first == pooled.first
    assert streamed.images.shape == pooled.images.shape == (2, 8, 8, 8, 3)
    real = stop - int(streamed.first)
    for name in ("images", "labels"):
      np.testing.assert_array_equal(
        getattr(streamed, name)[:real], getattr(pooled, name)[:real]
      )


@dataclasses.dataclass(frozen=True, eq=False)
class _Counted(Resident):
  """Notes the numbers of the rows that are read."""

  read_rows: list = dataclasses.field(default_factory=list)

  def read(self, rows, draws=None):
    self.read_rows.append(np.asarray(rows).tolist())
    return super().read(rows, draws)


def test_every_image_is_read_once_in_an_epoch_but_for_the_last_batch(
  two_steps,
):
  source = _Counted(IMAGES)
  streamed = _streamed(Stored(source, np.arange(20)))
  schedule = dataclasses.replace(SCHEDULE, epochs=1)
  list(streamed.blocks(jax.random.key(1), schedule))
  read = np.concatenate(source.read_rows)
  assert sorted(read[:20]) == list(range(20)) and len(read) == 24
  assert list(map(len, source.read_rows)) == [16, 8]


def test_views_that_vary_follow_seed_epoch_and_row(monkeypatch):
  images, key = _stored(varies=True), jax.random.key(1)
  pixels = lambda blocks: np.concatenate([b.images for b, _ in blocks])
  whole = pixels(_streamed(images).blocks(key, SCHEDULE))  # Twice 3 of 4 steps.
  other = pixels(_streamed(images).blocks(jax.random.key(2), SCHEDULE))
  monkeypatch.setattr(feed, "BYTES", STEP)
  late = pixels(_streamed(images).blocks(key, SCHEDULE, epoch=1, step=1))
  np.testing.assert_array_equal(late, whole[5:7])
  assert (other != whole).any()
  # The numbers, not only that they repeat: those of the seed in the key.
  seed = int(np.asarray(jax.random.key_data(key)).view(np.uint64)[0])
  for epoch in (0, 1):
    order = epoch_order(jax.random.fold_in(key, epoch), LABELS, 20)
    row = [int(order[3])]
    np.testing.assert_array_equal(
      whole[4 * epoch, 3], training_view(images, row, seed, epoch)[0]
    )


QUOTA = np.array([9, 6, 3, 2], np.int32)


def test_both_draw_classes_by_their_quota(two_steps):
  key = jax.random.key(1)
  feeds = (
    make_feed(IMAGES, LABELS, 32, stream, QUOTA)
    for stream in ("always", "never")
  )
  found = [list(feed.blocks(key, SCHEDULE)) for feed in feeds]
  for (streamed, _), (pooled, _) in zip(*found, strict=True):
    steps = min(2, 3 - int(streamed.first))
    np.testing.assert_array_equal(
      streamed.images[:steps], pooled.images[:steps]
    )
    np.testing.assert_array_equal(
      streamed.labels[:steps], pooled.labels[:steps]
    )
  epoch = np.concatenate([block.labels for block, _ in found[1][:2]])
  assert np.bincount(epoch.ravel()[:20]).tolist() == QUOTA.tolist()


def test_an_image_that_is_drawn_again_is_seen_otherwise():
  images = _stored(varies=True)
  quota = np.array([20, 0, 0, 0], np.int32)
  feed = Streamed(images, LABELS, 32, quota)
  (first, _), *_ = feed.blocks(jax.random.key(1), SCHEDULE)
  views = _rows(first.images[:2])  # 16 draws, of fewer images.
  assert len(set(views)) > (LABELS == 0).sum()


class _Broken(Resident):
  """Cannot read its last row."""

  def read(self, rows, draws=None):
    if 19 in rows:
      raise UserError("data_dir", "`data_dir`: 19.png is gone", "repair it")
    return super().read(rows, draws)


def test_what_cannot_be_read_ends_the_fit_and_no_thread_stays(start):
  broken, heard = Stored(_Broken(IMAGES), np.arange(20)), []
  with pytest.raises(UserError, match=r"19\.png is gone"):
    training.fit(
      start, feed=_streamed(broken), stage=Stage(report=heard.append)
    )
  assert threading.active_count() == 1
  assert {event.epoch for event in heard} <= {0}


# Which of the two.


def test_images_stream_when_a_device_has_no_room(monkeypatch):
  make = lambda **options: make_feed(IMAGES, LABELS, 32, **options)
  assert isinstance(make(), Pool)
  # A pool of 6144 bytes may take a quarter of a device.
  for room, kind in ((4 * 6144, Pool), (4 * 6144 - 1, Streamed)):
    monkeypatch.setattr(feed.bilevel, "device_bytes", lambda room=room: room)
    assert isinstance(make(), kind)
  assert isinstance(make(stream="never"), Pool)
  monkeypatch.undo()
  assert isinstance(make(stream="always"), Streamed)


def test_stored_images_that_fit_are_read_once():
  source = _Counted(IMAGES)
  pool = make_feed(Stored(source, np.arange(20)), LABELS, 32)
  assert isinstance(pool, Pool)
  assert source.read_rows == [list(range(20))]
  np.testing.assert_array_equal(pool.images[:20], IMAGES)


def test_views_that_vary_always_stream():
  images = _stored(varies=True)
  assert isinstance(make_feed(images, LABELS, 32), Streamed)
  with pytest.raises(UserError, match="`stream=never` would show") as refused:
    make_feed(images, LABELS, 32, stream="never")
  assert refused.value.field == "stream"


# Images on the device, padded to a capacity.

SMALL = np.arange(3 * 12, dtype=np.uint8).reshape(3, 2, 2, 3)
OF_SMALL = np.array([4, 0, 2])


def test_what_is_missing_to_the_capacity_is_zero():
  pool = make_pool(SMALL, OF_SMALL, 5)
  np.testing.assert_array_equal(pool.images[:3], SMALL)
  assert not pool.images[3:].any() and pool.images.shape == (5, 2, 2, 3)
  assert pool.labels.tolist() == [4, 0, 2, 0, 0]
  assert pool.count == 3


@pytest.mark.parametrize("rows, capacity", [(3, 2), (0, 2)])
def test_a_pool_that_does_not_hold_its_images_is_refused(rows, capacity):
  with pytest.raises(ValueError, match=f"{rows} images for a pool of 2"):
    make_pool(SMALL[:rows], OF_SMALL[:rows], capacity)


# How many steps a compiled call has images for.


@pytest.mark.parametrize(
  "batch, capacity, side, steps",
  [
    (4, 100, 8, 2),  # 2 of 4·8·8·3 = 768 bytes fit into 2,000.
    (4, 7, 8, 2),  # An epoch has two.
    (4, 3, 8, 1),
    (64, 1000, 8, 1),  # One does not fit, and there is at least one.
  ],
)
def test_as_many_as_fit_and_as_an_epoch_has(
  monkeypatch, batch, capacity, side, steps
):
  monkeypatch.setattr(feed, "BYTES", 2000)
  schedule = Schedule(batch_size=batch)
  found = feed.block_steps(schedule, capacity, (side, side, 3))
  assert found == steps
