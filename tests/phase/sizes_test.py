"""Sizes of arrays, by hand."""

import pytest

from mnemonics_jax.data import StreamShape
from mnemonics_jax.memory import PerClass, Total
from mnemonics_jax.phase.config import OpenShape, derive, round_up

GREY = (8, 8, 1)


def test_rounding_wastes_at_most_a_half():
  sizes = [8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]
  for count in range(1, 257):
    expected = next(size for size in sizes if size >= count)
    assert round_up(count) == expected
    assert count <= 8 or round_up(count) < 1.5 * count


def test_a_thousand_counts_have_few_sizes():
  assert len({round_up(count) for count in range(1, 1001)}) == 15


@pytest.mark.parametrize(
  ("policy", "exemplars", "new"),
  [
    (PerClass(10), 10, 24),  # 2 new classes of 10, rounded up.
    (PerClass(100), 40, 96),  # The largest class has 40: 80 at most.
    (Total(21), 3, 8),  # 21 for 7 classes: 6 new ones.
  ],
)
def test_of_one_phase(policy, exemplars, new):
  # Seven classes, two of them new with 70 images together; 50 old exemplars.
  shape = OpenShape((5, 2), 8, 70, 40, 50, GREY)
  sizes = derive(shape, policy)
  assert sizes.pool == sizes.later_pool == 128  # 70 + 50 are 120.
  assert sizes.class_images == 48
  assert sizes.class_exemplars == exemplars
  assert sizes.new_exemplars == new
  assert sizes.old_exemplars == 64


def test_phases_of_equal_sizes_share_them():
  sizes = lambda *phases: derive(
    OpenShape(phases, 16, 20, 20, 4 * sum(phases[:-1]), GREY), PerClass(4)
  )
  # 20 or 24 exemplars fit into 24 rows, with 20 images into 48.
  assert sizes(5, 1) == sizes(5, 1, 1)
  assert sizes(5, 1, 1) != sizes(5, 1, 1, 1)  # 28 do not.


def test_of_a_whole_run():
  shape = StreamShape((40, 30, 20, 10), (2, 1, 1), GREY)
  sizes = derive(shape, PerClass(5))
  assert sizes.pool == 70  # Phase 0; then 20 + 10, and 10 + 15.
  assert sizes.later_pool == 30
  assert sizes.class_images == 40
  assert sizes.new_exemplars == 5 and sizes.old_exemplars == 15


def test_an_imitated_phase_may_be_larger():
  shape = StreamShape((40, 30, 90, 10), (1, 2, 1), GREY)
  # Phase 1 has 120 + 5; after it come 30, its first, + 15. After phase 0, 40 + 5.
  assert derive(shape, PerClass(5), imitates=True).pool == 125
  shape = StreamShape((90, 10, 10, 10), (1, 1, 2), GREY)
  # Phase 0 has 90, and what follows it 90 + 5.
  assert derive(shape, PerClass(5), imitates=True).pool == 95
  assert derive(shape, PerClass(5)).pool == 90
  # A learner: 70 new images, 50 old exemplars and 2 · 10 new ones are 140.
  shape = OpenShape((5, 2), 8, 70, 40, 50, GREY)
  assert derive(shape, PerClass(10), imitates=True).pool == 192


def test_an_open_shape_asks_for_nothing_of_the_past():
  shape = OpenShape((5, 2), 8, 70, 40, 50, GREY)
  assert shape.smallest_class is None and not shape.joint
