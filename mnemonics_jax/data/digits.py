"""Scikit-learn's embedded 8×8 digits: no download, no directory."""

import os

import numpy as np

from mnemonics_jax.data.dataset import Dataset
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import Report, ignore

# Of the training images of the split below, pixels scaled to [0, 1].
_MEAN, _STD = 0.3052, 0.3760


def load(
  data_dir: str | os.PathLike | None = None,
  *,
  cache_dir: str | os.PathLike | None = None,
  report: Report = ignore,
  share: Share = Share(),
) -> Dataset:
  """1,797 digits as RGB; every fifth image of each class is a test image.

  They come with scikit-learn, so all arguments are ignored.
  """
  del data_dir, cache_dir, report, share
  from sklearn.datasets import load_digits  # Takes a second to import.

  pixels, target = load_digits(return_X_y=True)
  grey = np.rint(pixels * (255 / 16)).astype(np.uint8)
  images = np.repeat(grey.reshape(-1, 8, 8, 1), 3, axis=-1)
  labels = target.astype(np.int32)
  test = np.zeros(len(labels), bool)
  for label in range(10):
    test[np.flatnonzero(labels == label)[4::5]] = True
  return Dataset(
    name="digits",
    train_images=images[~test],
    train_labels=labels[~test],
    test_images=images[test],
    test_labels=labels[test],
    class_names=tuple(map(str, range(10))),
    mean=(_MEAN,) * 3,
    std=(_STD,) * 3,
  )
