"""A share of every class's exemplars is held out, the first ones of it."""

import numpy as np
import pytest

from mnemonics_jax.phase import draws


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


def test_as_many_new_images_are_held_out_as_exemplars_will_be():
  labels = np.repeat([4, 5], [50, 3])
  draw = lambda seed: draws.held_new_images(
    np.random.default_rng(seed), labels, 0.1, allowance=20
  )
  assert np.bincount(labels[draw(0)]).tolist() == [0, 0, 0, 0, 2, 1]
  assert (draw(0) != draw(1)).any() and (draw(0) == draw(0)).all()
  rng = np.random.default_rng(0)
  assert not draws.held_new_images(rng, labels, 0.0, allowance=20).any()
