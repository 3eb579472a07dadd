"""A data set whose tests are held-out training images: for choosing settings."""

import dataclasses

import numpy as np

from mnemonics_jax.data.dataset import DataError, Dataset


def for_tuning(dataset: Dataset, fraction: float) -> Dataset:
  """Trains on a part of the training images and tests on the rest of them.

  Whatever is chosen by such tests has not seen the test images.

  >>> from mnemonics_jax import data
  >>> digits = data.load("digits")
  >>> tuned = for_tuning(digits, fraction=0.1)
  >>> len(digits.train_labels), len(tuned.train_labels), len(tuned.test_labels)
  (1442, 1299, 143)

  Args:
    dataset: all images; its test images are left out.
    fraction: share of the training images of each class to test on, the last.
  """
  if not 0 < fraction < 1:
    raise DataError(
      "tuning_fraction",
      f"`tuning_fraction={fraction}` cannot be used",
      "it must lie between 0 and 1",
    )
  held = np.zeros(len(dataset.train_labels), bool)
  for label in range(len(dataset.class_names)):
    rows = np.flatnonzero(dataset.train_labels == label)
    if len(rows) < 2:
      raise DataError(
        "tuning_fraction",
        f"`tuning_fraction` leaves nothing of {dataset.class_names[label]} to"
        " train on",
        "give every class two training images or more",
      )
    held[rows[-min(max(round(fraction * len(rows)), 1), len(rows) - 1) :]] = (
      True
    )
  return dataclasses.replace(
    dataset,
    train_images=dataset.train_images[~held],
    train_labels=dataset.train_labels[~held],
    test_images=dataset.train_images[held],
    test_labels=dataset.train_labels[held],
    notes=(
      *dataset.notes,
      f"tests are {held.sum():,} held-out training images, for choosing settings;"
      " the test images were left out.",
    ),
  )
