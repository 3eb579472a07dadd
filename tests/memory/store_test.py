"""The exemplar memory."""

import numpy as np
import pytest

from mnemonics_jax import memory
from mnemonics_jax.errors import UserError


def _images(*values):
  return np.array(values, np.uint8).reshape(-1, 1, 1, 1) * np.ones(
    (2, 2, 3), np.uint8
  )


def _filled():
  store = memory.empty(3, (2, 2, 3))
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
  assert after.counts.tolist() == [1, 0, 2]


def test_many_classes_at_once_are_as_one_by_one():
  before = _filled()
  one_by_one = memory.insert(before, 2, _images(5))
  one_by_one = memory.insert(one_by_one, 1, _images(6, 7))
  at_once = memory.store(before, _images(6, 5, 7), np.array([1, 2, 1]))
  np.testing.assert_array_equal(at_once.images, one_by_one.images)
  assert at_once.counts.tolist() == one_by_one.counts.tolist() == [4, 2, 1]
  assert at_once.images[:, 0, 0, 0].tolist() == [1, 2, 3, 4, 6, 7, 5]
  assert before.counts.tolist() == [4, 0, 2]


def test_storing_what_flat_gives_changes_nothing():
  images, labels = memory.flat(_filled())
  again = memory.store(memory.empty(3, (2, 2, 3)), images, labels)
  np.testing.assert_array_equal(again.images, _filled().images)
  np.testing.assert_array_equal(again.counts, _filled().counts)


def test_what_fits_is_not_copied():
  store = _filled()
  assert memory.discard(None, store, 4) is store
  images = _images(*range(9))
  kept = memory.store(memory.empty(1, (2, 2, 3)), images, np.zeros(9, int))
  assert np.shares_memory(kept.images, kept.codes.data)


def test_discard_without_randomness_keeps_the_first():
  small = memory.discard(None, _filled(), 2)
  assert memory.flat(small)[0][:, 0, 0, 0].tolist() == [1, 2, 7, 8]


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
    tuple(memory.discard(np.random.default_rng(s), _filled(), 2).images[:2, 0, 0, 0])
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


def _smooth(*seeds):
  """Images of different codes: a gradient and some noise."""
  ramp = np.linspace(0, 200, 16)[:, None, None] * np.ones((16, 16, 3))
  noise = lambda seed: np.random.default_rng(seed).normal(
    0, 4 * seed, ramp.shape
  )
  return np.stack([np.clip(ramp + noise(s), 0, 255) for s in seeds]).astype(
    np.uint8
  )


def test_codes_of_other_classes_stay_as_they_are():
  """Coding again what was decoded would lose something each time."""
  codec = memory.Jpeg(40)
  store = memory.empty(3, (16, 16, 3), codec)
  store = memory.insert(store, 1, _smooth(1, 2))
  more = memory.insert(store, 0, _smooth(3, 4, 5))
  assert more.counts.tolist() == [3, 2, 0]
  for label, images in [(0, _smooth(3, 4, 5)), (1, _smooth(1, 2))]:
    expected, found = codec.encode(images), more.of_class(label)
    np.testing.assert_array_equal(found.data, expected.data)
    np.testing.assert_array_equal(found.sizes, expected.sizes)
  np.testing.assert_array_equal(
    more.images[3:], memory.round_trip(codec, _smooth(1, 2))
  )
  assert more.labels.tolist() == [0, 0, 0, 1, 1]
  shared = len(codec.shared((16, 16, 3)))
  assert memory.size_bytes(more) == more.codes.sizes.sum() + shared
  assert memory.size_bytes(memory.empty(3, (16, 16, 3), codec)) == 0


def test_a_budget_of_bytes_keeps_the_first_that_fit():
  store = memory.empty(2, (16, 16, 3), memory.Jpeg(40))
  store = memory.insert(store, 0, _smooth(1, 2, 3))
  store = memory.insert(store, 1, _smooth(4))
  a, b, c, d = store.codes.sizes.tolist()
  assert d > a
  kept = lambda budget: memory.discard(None, store, 9, bytes_allowance=budget)
  assert kept(a + b + c + d) is store
  small = kept(max(a + b + c - 1, d))
  assert small.counts.tolist() == [2, 1]
  np.testing.assert_array_equal(small.images, store.images[[0, 1, 3]])
  assert small.codes.sizes.tolist() == [a, b, d]
  with pytest.raises(UserError, match=f"takes {a} bytes, and a class has 5"):
    kept(5)


def test_which_images_stay_in_a_budget():
  sizes = np.array([10, 20, 30, 40, 50])
  stay = lambda *args, **kw: memory.staying(None, sizes, *args, **kw).tolist()
  assert stay(5) == stay(9, bytes_allowance=150) == [0, 1, 2, 3, 4]
  assert stay(4) == [0, 1, 2, 3]  # One too many.
  assert stay(3) == [0, 1, 2]
  assert stay(9, bytes_allowance=149) == [0, 1, 2, 3]
  assert stay(2, bytes_allowance=149) == [0, 1]
  # Two of five are apart, one of two or three: 10 + 30 fit, 10 + 30 + 40 do not.
  half = lambda count: count // 2
  assert stay(9, half, bytes_allowance=79) == [0, 2]
  assert stay(9, half, bytes_allowance=80) == [0, 2, 3]
  shuffled = {
    tuple(
      memory.staying(np.random.default_rng(s), sizes, 9, bytes_allowance=60)
    )
    for s in range(30)
  }
  assert len(shuffled) > 3
  assert all(sizes[list(rows)].sum() <= 60 for rows in shuffled)


def test_memories_compare_by_value():
  assert _filled() == _filled()
  assert _filled() != memory.replace(_filled(), 2 * _filled().images)
  assert _filled() != 5
