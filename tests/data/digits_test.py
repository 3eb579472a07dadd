"""scikit-learn's digits: where its numbers come from."""

import numpy as np
import pytest

from mnemonics_jax.data import digits


@pytest.fixture(scope="module")
def loaded():
  return digits.load()


def test_every_fifth_of_each_class_is_a_test_image(loaded):
  from sklearn.datasets import load_digits

  pixels, target = load_digits(return_X_y=True)
  for label in range(10):
    rows = np.flatnonzero(target == label)
    held = [row for place, row in enumerate(rows) if place % 5 == 4]
    expected = np.rint(pixels[held] * 255 / 16).astype(np.uint8)
    found = loaded.test_images[loaded.test_labels == label]
    np.testing.assert_array_equal(found[..., 0].reshape(-1, 64), expected)
    assert (loaded.train_labels == label).sum() == len(rows) - len(held)


def test_it_is_grey_in_three_channels(loaded):
  assert loaded.image_shape == (8, 8, 3)
  for channel in (1, 2):
    np.testing.assert_array_equal(
      loaded.train_images[..., channel], loaded.train_images[..., 0]
    )


def test_mean_and_deviation_are_those_of_the_training_images(loaded):
  pixels = loaded.train_images / 255
  assert loaded.mean == pytest.approx(pixels.mean((0, 1, 2)), abs=1e-4)
  assert loaded.std == pytest.approx(pixels.std((0, 1, 2)), abs=1e-4)
