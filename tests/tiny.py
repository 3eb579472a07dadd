"""A data set that is learned in seconds: noisy patterns, one per class."""

import numpy as np

from mnemonics_jax.data import Dataset


def dataset(classes=6, train=12, test=6, seed=0) -> Dataset:
  rng = np.random.default_rng(seed)
  patterns = rng.integers(0, 256, (classes, 8, 8, 3))

  def draw(count):
    labels = np.repeat(np.arange(classes), count).astype(np.int32)
    noise = rng.normal(0, 40, (len(labels), 8, 8, 3))
    images = np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8)
    return images, labels

  return Dataset(
    "tiny",
    *draw(train),
    *draw(test),
    class_names=tuple(f"class {c}" for c in range(classes)),
    mean=(0.5,) * 3,
    std=(0.25,) * 3,
  )
