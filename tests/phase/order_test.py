"""An epoch draws every image once, in an order of its own."""

import jax
import numpy as np

from mnemonics_jax.phase.draws import epoch_order


def order(seed, capacity, count):
  labels = np.zeros(capacity, np.int32)
  return epoch_order(jax.random.key(seed), labels, count).tolist()


def test_real_rows_come_first_and_each_of_them_once():
  for seed in range(5):
    assert sorted(order(seed, 12, 7)[:7]) == list(range(7))
    assert sorted(order(seed, 12, 7)) == list(range(12))


def test_another_key_is_another_order():
  orders = {tuple(order(seed, 12, 12)) for seed in range(6)}
  assert len(orders) == 6
  assert order(3, 12, 12) == order(3, 12, 12)


def test_every_image_may_be_first():
  firsts = [order(seed, 4, 4)[0] for seed in range(80)]
  assert set(firsts) == {0, 1, 2, 3}


LABELS = np.array([0] * 2 + [1] * 3 + [2] * 7 + [0] * 4, np.int32)  # Four pad.
QUOTA = np.array([5, 3, 4, 0], np.int32)


def drawn(seed, labels=LABELS, quota=QUOTA):
  rows = epoch_order(jax.random.key(seed), labels, 12, quota)
  return np.asarray(rows)[:12]


def test_each_class_has_its_draws_and_its_images_share_them_equally():
  often = np.zeros(12, int)
  for seed in range(60):
    rows = drawn(seed)
    times = np.bincount(rows, minlength=12)
    assert len(times) == 12  # No padding.
    assert np.bincount(LABELS[rows], minlength=4).tolist() == QUOTA.tolist()
    # Five draws of two images, three of three, four of seven.
    assert sorted(times[:2]) == [2, 3] and times[2:5].tolist() == [1, 1, 1]
    assert times[5:].max() == 1
    often += times
  # Who has one more is decided anew in every epoch.
  assert abs(often[0] - often[1]) < 30 and often[5:].min() > 20


def test_draws_of_all_classes_are_mixed():
  firsts = {int(LABELS[drawn(seed)[0]]) for seed in range(30)}
  assert firsts == {0, 1, 2}
  assert len({tuple(drawn(seed)) for seed in range(10)}) == 10
  np.testing.assert_array_equal(drawn(3), drawn(3))


def test_more_room_changes_no_draw():
  longer = np.concatenate([LABELS, np.zeros(9, np.int32)])
  for seed in range(5):
    np.testing.assert_array_equal(drawn(seed), drawn(seed, longer))
