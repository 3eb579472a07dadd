"""Held-out sets are balanced and disjoint from what is trained on."""

import numpy as np

from mnemonics_jax.phase.holdout import hold_out


def test_held_out_data_are_balanced_and_disjoint():
  """BiC's validation images are not among those stage 1 trains on."""
  rng = np.random.default_rng(0)
  unique = rng.integers(0, 256, (70, 2, 2, 3), dtype=np.uint8)
  old = (unique[:30], np.repeat(np.arange(3), 10).astype(np.int32))
  new = (unique[30:], np.repeat([3, 4], 20).astype(np.int32))
  (kept, kept_labels), (held, held_labels) = hold_out(rng, old, new, 0.2)
  assert np.bincount(held_labels).tolist() == [2] * 5
  assert np.bincount(kept_labels).tolist() == [8, 8, 8, 18, 18]
  as_rows = lambda images: {image.tobytes() for image in images}
  assert not as_rows(kept) & as_rows(held)
  assert as_rows(kept) | as_rows(held) == as_rows(unique)


def test_a_single_exemplar_is_trained_on_not_held_out():
  old = (np.zeros((2, 2, 2, 3), np.uint8), np.array([0, 1], np.int32))
  new = (np.zeros((3, 2, 2, 3), np.uint8), np.array([2] * 3, np.int32))
  rng = np.random.default_rng(0)
  (kept, _), held = hold_out(rng, old, new, 0.1)
  assert len(kept) == 5 and held is None


def test_a_small_new_class_keeps_an_image_to_train_on():
  old = (np.zeros((50, 2, 2, 3), np.uint8), np.zeros(50, np.int32))
  new = (np.zeros((3, 2, 2, 3), np.uint8), np.ones(3, np.int32))
  rng = np.random.default_rng(0)
  (_, kept), (_, held) = hold_out(rng, old, new, 0.1)
  assert np.bincount(held).tolist() == [5, 2]
  assert np.bincount(kept).tolist() == [45, 1]
