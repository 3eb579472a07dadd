"""The protocol against published values, hand computations and properties."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from mnemonics_jax import protocol
from mnemonics_jax.errors import UserError


def test_class_order_is_the_published_one():
  order = protocol.class_order(100)
  assert order[:10].tolist() == [68, 56, 78, 8, 23, 84, 90, 65, 74, 76]
  assert sorted(order) == list(range(100))


def test_another_seed_is_another_order():
  # `permutation` is what legacy NumPy calls the shuffle of a range.
  for seed in (0, 7):
    expected = np.random.RandomState(seed).permutation(100)
    np.testing.assert_array_equal(protocol.class_order(100, seed), expected)


def test_imagenet_subset_has_no_repeats():
  subset = protocol.class_subset(1000, 100)
  assert len(set(subset.tolist())) == 100
  expected = np.random.RandomState(1993).choice(1000, 100, replace=False)
  np.testing.assert_array_equal(subset, expected)


@pytest.mark.parametrize(
  "arguments, expected",
  [
    ((100, 5), (50, 10, 10, 10, 10, 10)),
    ((100, 25), (50, *[2] * 25)),
    ((10, 5, 5), (5, 1, 1, 1, 1, 1)),
    ((10, 3, 0), (4, 3, 3)),
    ((10, 4, 3), (3, 2, 2, 2, 1)),
    ((100, 0), (50,)),
    ((10, 0, 10), (10,)),
  ],
)
def test_split_phases(arguments, expected):
  assert protocol.split_phases(*arguments) == expected


@pytest.mark.parametrize(
  "arguments, field, part",
  [
    ((100, 0, 0), "phases", "`phases=0`"),
    ((100, -1), "phases", "`phases=-1`"),
    ((100, 1.5), "phases", "`phases=1.5` .* whole"),
    ((100, 51), "phases", "`phases=51` .*; use `phases=50` or fewer"),
    ((10, 2, 10), "base_classes", "leaves no class for `phases=2`"),
    ((10, 2, 11), "base_classes", "`base_classes=11`"),
    ((10, 2, -1), "base_classes", "`base_classes=-1`"),
    ((10, 2, 2.5), "base_classes", "`base_classes=2.5` .* whole"),
  ],
)
def test_impossible_splits_name_the_setting(unchecked, arguments, field, part):
  with pytest.raises(UserError, match=part) as refused:
    protocol.split_phases(*arguments)
  assert refused.value.field == field


@given(st.data())
def test_every_class_belongs_to_exactly_one_nonempty_phase(data):
  classes = data.draw(st.integers(2, 300))
  base = data.draw(st.integers(0, classes - 1))
  phases = data.draw(st.integers(1, classes - base))
  split = protocol.split_phases(classes, phases, base)
  assert sum(split) == classes and min(split) >= 1
  assert len(split) == phases + (base > 0)
  later = split[1:] if base else split
  assert max(later) - min(later) <= 1


CONFUSION = np.array([[8, 2, 0, 0], [1, 9, 0, 0], [0, 5, 5, 0], [0, 0, 0, 10]])


def test_metrics_by_hand():
  assert protocol.accuracy(CONFUSION) == 32 / 40
  assert protocol.accuracy(CONFUSION, slice(0, 2)) == 17 / 20
  assert protocol.group_accuracies(CONFUSION, (2, 1, 1)) == [0.85, 0.5, 1.0]
  # Two phases learned of three.
  assert protocol.group_accuracies(CONFUSION[:3, :3], (2, 1, 1)) == [0.85, 0.5]
  assert protocol.average_accuracy([0.9, 0.6, 0.3]) == pytest.approx(0.6)
  assert protocol.forgetting([0.9, 0.8, 0.7]) == pytest.approx(0.2)


def test_group_accuracies_follow_unequal_groups():
  np.testing.assert_allclose(
    protocol.group_accuracies(CONFUSION, (1, 3)), [0.8, 24 / 30]
  )


def test_confidence_interval_against_a_table_of_t():
  # t_{0.975} with 2 degrees of freedom is 4.302653; s of (1, 2, 3) is 1.
  mean, half = protocol.confidence_interval([1.0, 2.0, 3.0])
  assert mean == 2.0
  assert half == pytest.approx(4.302653 / 3**0.5, rel=1e-6)
  assert protocol.confidence_interval([0.5]) == (0.5, None)
