"""What counts as a usable data set, the digits, and the choice by name."""

import copy

import numpy as np
import pytest

from mnemonics_jax import data


@pytest.fixture(scope="module")
def digits():
  return data.load("digits")


def test_digits_are_the_embedded_ones(digits):
  from sklearn.datasets import load_digits

  raw = load_digits()
  assert digits.train_images.shape == (1442, 8, 8, 3)
  assert digits.test_images.shape == (355, 8, 8, 3)
  # The first image is a zero; row 1 is 0 0 13 15 10 15 5 0 of 16.
  np.testing.assert_array_equal(
    digits.train_images[0, 1, :, 0], [0, 0, 207, 239, 159, 239, 80, 0]
  )
  np.testing.assert_array_equal(
    digits.train_images[..., 0], digits.train_images[..., 2]
  )
  assert digits.train_images.max() == 255
  # Together the splits are all images, each once.
  both = np.concatenate([digits.train_images, digits.test_images])[..., 0]
  rows = np.rint(both.reshape(-1, 64) * (16 / 255))
  expected = raw.data[np.lexsort(raw.data.T)]
  np.testing.assert_array_equal(rows[np.lexsort(rows.T)], expected)


def test_digits_split_is_stratified_and_fixed(digits):
  counts = [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]
  expected = [count // 5 for count in counts]
  assert np.bincount(digits.test_labels).tolist() == expected
  # The fifth zero of the data set is the first test image.
  from sklearn.datasets import load_digits

  raw = load_digits()
  fifth = raw.images[np.flatnonzero(raw.target == 0)[4]]
  first = digits.test_images[digits.test_labels == 0][0, ..., 0]
  np.testing.assert_array_equal(np.rint(first * (16 / 255)), fifth)


def test_digits_normalisation(digits):
  pixels = digits.train_images / 255.0
  np.testing.assert_allclose(digits.mean, pixels.mean((0, 1, 2)), atol=1e-4)
  np.testing.assert_allclose(digits.std, pixels.std((0, 1, 2)), atol=1e-4)


def broken(dataset, **changes):
  """A data set of the wrong types, which the tests' type checks do not see."""
  dataset = copy.copy(dataset)
  for name, value in changes.items():
    object.__setattr__(dataset, name, value)
  return dataset


def test_class_without_images(digits):
  names = (*digits.class_names, "ten")
  with pytest.raises(data.DataError, match="no train image of ten"):
    data.verify(broken(digits, class_names=names))


NAN = np.full((355, 8, 8, 3), np.nan)
BROKEN = {
  "float": ({"test_images": NAN}, "float64, pixels must be uint8"),
  "black": ({"train_images": np.zeros((1442, 8, 8, 3), np.uint8)}, "black"),
  "grey": ({"train_images": np.ones((1442, 8, 8), np.uint8)}, "shape"),
  "one channel": (
    {"train_images": np.ones((1442, 8, 8, 1), np.uint8)},
    "shape",
  ),
  "count": ({"train_labels": np.zeros(7, np.int32)}, "1442 train images"),
  "label type": ({"test_labels": np.zeros(355, np.int64)}, "int64"),
  "label range": ({"test_labels": np.full(355, 10, np.int32)}, "10..10"),
  "negative": ({"test_labels": np.full(355, -1, np.int32)}, "-1..-1"),
  "missing class": (
    {"test_labels": np.zeros(355, np.int32)},
    "test image of 1",
  ),
  "sizes": ({"test_images": np.full((355, 9, 9, 3), 9, np.uint8)}, "differ"),
  "names": ({"class_names": ("0",) * 10}, "same name"),
  "one class": ({"class_names": ("0",)}, "2 are the minimum"),
  "std": ({"std": (0.0, 1.0, 1.0)}, "positive"),
  "mean": ({"mean": (0.5,)}, "one finite value per channel"),
  "nan mean": ({"mean": (0.5, np.nan, 0.5)}, "finite"),
  "infinite std": ({"std": (1.0, np.inf, 1.0)}, "finite"),
  "empty": (
    {
      "test_images": np.zeros((0, 8, 8, 3), np.uint8),
      "test_labels": np.zeros(0, np.int32),
    },
    "no test images",
  ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_verify_names_the_problem(digits, case):
  changes, message = BROKEN[case]
  with pytest.raises(data.DataError, match=message):
    data.verify(broken(digits, **changes))


def test_unknown_name_and_wrong_size():
  with pytest.raises(data.DataError, match="digits, cifar100, folder"):
    data.load("mnist")
  with pytest.raises(
    data.DataError, match="`image_size=32` is not an option of digits"
  ):
    data.load("digits", image_size=32)
  with pytest.raises(data.DataError, match=r"\(cifar100 has download, "):
    data.load("cifar100", strict=True)


def test_unreadable_directory_is_a_message(tmp_path, monkeypatch):
  from mnemonics_jax.data import cifar100, folder

  def denied(*_, **__):
    raise PermissionError(13, "Permission denied", "/secret")

  monkeypatch.setattr(cifar100, "load", denied)
  with pytest.raises(data.DataError, match=r"`data_dir=.*/secret \(Permission"):
    data.load("cifar100", tmp_path)
  monkeypatch.setattr(folder, "scan", denied)
  with pytest.raises(data.DataError, match=r"`data_dir=.*/secret \(Permission"):
    data.load("folder", tmp_path)
