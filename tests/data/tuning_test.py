"""Tests of held-out training images: nothing of the test images is seen."""

import dataclasses

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import data
from mnemonics_jax.errors import UserError


def test_the_last_training_images_of_each_class_are_tested():
  whole = tiny.dataset(classes=3, train=12, test=5)
  order = np.random.default_rng(0).permutation(36)
  whole = dataclasses.replace(
    whole,
    train_images=whole.train_images[order],
    train_labels=whole.train_labels[order],
  )
  found = data.for_tuning(whole, 0.25)
  for label in range(3):
    own = whole.train_images[whole.train_labels == label]
    trained = found.train_images[found.train_labels == label]
    tested = found.test_images[found.test_labels == label]
    np.testing.assert_array_equal(trained, own[:9])
    np.testing.assert_array_equal(tested, own[9:])
  assert "9 held-out training images" in found.notes[-1]
  assert found.checksum != whole.checksum
  data.verify(found)


def test_of_every_class_something_is_trained_on_and_tested():
  whole = tiny.dataset(classes=2, train=2)
  for fraction in (0.01, 0.99):
    found = data.for_tuning(whole, fraction)
    assert found.train_labels.tolist() == found.test_labels.tolist() == [0, 1]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_shares_that_leave_nothing_are_refused(fraction):
  with pytest.raises(UserError, match="`tuning_fraction="):
    data.for_tuning(tiny.dataset(), fraction)
  with pytest.raises(UserError, match="nothing of class 0 to train on"):
    data.for_tuning(tiny.dataset(classes=2, train=1), 0.5)
