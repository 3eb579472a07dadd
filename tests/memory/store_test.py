"""The exemplar memory."""

import numpy as np
import pytest

from mnemonics_jax import memory


def _images(*values):
  return np.array(values, np.uint8).reshape(-1, 1, 1, 1) * np.ones(
    (2, 2, 3), np.uint8
  )


def _filled():
  store = memory.empty(3, 4, (2, 2, 3))
  store = memory.insert(store, 0, _images(1, 2, 3, 4))
  return memory.insert(store, 2, _images(7, 8))


def test_flat_gives_images_and_labels_in_class_order():
  images, labels = memory.flat(_filled())
  assert images[:, 0, 0, 0].tolist() == [1, 2, 3, 4, 7, 8]
  assert labels.tolist() == [0, 0, 0, 0, 2, 2]


def test_insert_replaces_a_class_and_leaves_the_argument():
  before = _filled()
  after = memory.insert(before, 0, _images(9))
  assert memory.flat(after)[0][:, 0, 0, 0].tolist() == [9, 7, 8]
  assert before.counts.tolist() == [4, 0, 2]
  assert not after.images[0, 1:].any()


def test_many_classes_at_once_are_as_one_by_one():
  before = _filled()
  images = {2: _images(5), 1: _images(6, 7), 0: _images()}
  one_by_one = before
  for label, chosen in images.items():
    one_by_one = memory.insert(one_by_one, label, chosen)
  at_once = memory.insert_many(before, images)
  np.testing.assert_array_equal(at_once.images, one_by_one.images)
  assert at_once.counts.tolist() == one_by_one.counts.tolist() == [0, 2, 1]
  assert before.counts.tolist() == [4, 0, 2]


def test_storing_what_flat_gives_changes_nothing():
  images, labels = memory.flat(_filled())
  again = memory.store(memory.empty(3, 4, (2, 2, 3)), images, labels)
  np.testing.assert_array_equal(again.images, _filled().images)
  np.testing.assert_array_equal(again.counts, _filled().counts)


def test_discard_copies_the_grid_once():
  store = memory.insert(_filled(), 1, _images(5, 6, 7))
  copies = []

  class Counting(np.ndarray):
    def copy(self, *args, **kwargs):
      copies.append(self.shape)
      return super().copy(*args, **kwargs)

  watched = store._replace(images=store.images.view(Counting))
  small = memory.discard(np.random.default_rng(0), watched, 1)
  assert small.counts.tolist() == [1, 1, 1]
  assert copies == [store.images.shape]


def test_discard_without_randomness_keeps_the_first():
  small = memory.discard(None, _filled(), 2)
  assert memory.flat(small)[0][:, 0, 0, 0].tolist() == [1, 2, 7, 8]
  assert not small.images[0, 2:].any()


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_the_first_may_shrink_among_themselves(seed):
  """Of four two are apart, of two one: the first of each kind, or any other."""
  rng = None if seed is None else np.random.default_rng(seed)
  small = memory.discard(rng, _filled(), 2, apart=lambda count: count // 2)
  first, other = memory.flat(small)[0][:2, 0, 0, 0].tolist()
  assert first == 1 and other in ([3] if seed is None else [3, 4])
  assert small.counts.tolist() == [2, 0, 2]


def test_discard_keeps_a_random_part_of_what_was_there():
  kept = {
    tuple(memory.discard(np.random.default_rng(s), _filled(), 2).images[0, :2, 0, 0, 0])
    for s in range(50)
  }  # fmt: skip
  assert all(set(pair) < {1, 2, 3, 4} and len(set(pair)) == 2 for pair in kept)
  assert len(kept) > 3
  small = memory.discard(np.random.default_rng(0), _filled(), 2)
  assert small.counts.tolist() == [2, 0, 2]


def test_replace_puts_images_back_where_flat_found_them():
  store = _filled()
  images, labels = memory.flat(store)
  changed = memory.replace(store, images + 100)
  np.testing.assert_array_equal(memory.flat(changed)[0], images + 100)
  np.testing.assert_array_equal(memory.flat(changed)[1], labels)
  np.testing.assert_array_equal(changed.counts, store.counts)


def test_size_counts_images_not_slots():
  assert memory.size_bytes(_filled()) == 6 * 2 * 2 * 3


def test_too_many_images_are_refused():
  with pytest.raises(ValueError, match="5 images do not fit in 4 slots"):
    memory.insert(_filled(), 1, _images(1, 2, 3, 4, 5))
