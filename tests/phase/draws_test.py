"""Which images an epoch draws, how often, and which are never trained on."""

import jax
import numpy as np
import pytest

from mnemonics_jax.errors import UserError
from mnemonics_jax.phase import draws
from mnemonics_jax.phase.draws import epoch_order
from mnemonics_jax.settings import Phase


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


# How often exemplars are drawn, by hand.

# Two old classes of two exemplars, a new one of ten images, one not seen yet.
KEPT = np.array([0, 0, 1, 1] + [2] * 10)


def quotas(how, labels=KEPT, old=2):
  return draws.quotas(how, labels, old, classes=4)


def test_once_is_no_quota_and_the_first_phase_has_none():
  assert quotas("once") is None
  assert quotas("balanced", old=0) is None


@pytest.mark.parametrize(
  ("how", "expected"),
  [
    # 14 draws for three classes: 4.67 of each; two have one more.
    ("balanced", [5, 5, 4, 0]),
    # 4·2, 4·2 and 10 are 26: 14/26 of that is 4.31, 4.31, 5.38.
    ("4", [4, 4, 6, 0]),
    ("1", [2, 2, 10, 0]),
    # 2000, 2000 and 10.
    ("1000", [7, 7, 0, 0]),
  ],
)
def test_an_epoch_has_as_many_draws_as_there_are_images(how, expected):
  assert quotas(how).tolist() == expected


def test_classes_of_a_memory_count_alike():
  labels = np.array([0] * 2 + [1] * 6 + [3] * 3)
  # 11 draws for three classes: 3.67 of each; two have one more.
  assert draws.equal_quotas(labels, classes=5).tolist() == [4, 4, 0, 3, 0]
  assert draws.equal_quotas(np.array([0, 0, 2, 2]), classes=4) is None


def test_new_classes_of_different_size_keep_their_sizes():
  labels = np.array([0] + [1] * 3 + [2] * 9)
  # Old: the mean of 3 and 9. 6, 3 and 9 are 18: 13/18 of that.
  found = quotas("balanced", labels, old=1)
  assert found.tolist() == [4, 2, 7, 0]  # 4.33, 2.17, 6.5


def test_a_class_of_which_nothing_is_kept_is_not_drawn():
  labels = np.array([1, 1] + [2] * 4)
  assert quotas("balanced", labels).tolist() == [0, 3, 3, 0]


@pytest.mark.parametrize("how", ["", "twice", "0", "-2", "1.5", "all", "1e3"])
def test_what_is_no_way_to_rehearse_is_refused(how):
  with pytest.raises(UserError, match="`rehearsal="):
    Phase.check_value("rehearsal", how)


# A share of every class's exemplars is held out, the first ones of it.


@pytest.mark.parametrize(
  ("count", "fraction", "held"),
  [
    (20, 0.1, 2),
    (40, 0.1, 4),
    (5, 0.1, 1),  # At least one,
    (2, 0.1, 1),
    (2, 0.9, 1),  # never all,
    (1, 0.1, 0),
    (20, 0.0, 0),  # and none if nobody asks.
  ],
)
def test_a_share_of_exemplars(count, fraction, held):
  assert draws.held_share(count, fraction) == held


def test_classes_that_shrink_lose_held_out_and_other_exemplars_alike():
  """Of neither kind there were fewer before than there are after."""
  held = np.array([draws.held_share(count, 0.1) for count in range(2, 300)])
  kept = np.arange(2, 300) - held
  assert (np.diff(held) >= 0).all() and (np.diff(kept) >= 0).all()


def test_the_first_exemplars_of_a_class_are_held_out():
  labels = np.repeat([0, 1, 3], [20, 30, 2])
  held = draws.held_in_memory(labels, 0.1)
  assert np.flatnonzero(held).tolist() == [0, 1, 20, 21, 22, 50]
  # Of classes that are about to shrink, as many as then.
  held = draws.held_in_memory(labels, 0.1, allowance=10)
  assert np.flatnonzero(held).tolist() == [0, 20, 50]
  assert not draws.held_in_memory(labels, 0.0).any()


def test_of_held_out_images_some_of_each_class_are_taken():
  """The first ones, one at least."""
  held = np.array([True, False, True, True, True])
  first = lambda count: draws.first_held(np.array([0] * 4 + [1]), held, count)
  assert first(1.8).tolist() == [True, False, True, False, True]
  assert first(0.2).tolist() == [True, False, False, False, True]


def test_as_many_new_images_are_held_out_as_exemplars_will_be():
  labels = np.repeat([4, 5], [50, 3])
  draw = lambda seed: draws.held_new_images(
    np.random.default_rng(seed), labels, 0.1, allowance=20
  )
  assert np.bincount(labels[draw(0)]).tolist() == [0, 0, 0, 0, 2, 1]
  assert (draw(0) != draw(1)).any() and (draw(0) == draw(0)).all()
  rng = np.random.default_rng(0)
  assert not draws.held_new_images(rng, labels, 0.0, allowance=20).any()
