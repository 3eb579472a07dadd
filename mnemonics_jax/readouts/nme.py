"""The nearest mean of exemplars (Rebuffi et al. 2017)."""

from collections.abc import Iterable
import dataclasses
from typing import ClassVar

from jaxtyping import Float, Int
import numpy as np

from mnemonics_jax.readouts.base import Readout


def normalize(x: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
  """x / ‖x‖ along the last axis; zeros stay zeros."""
  return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


@dataclasses.dataclass(frozen=True)
class NearestMean(Readout):
  """Cosines of features and class means of normalised exemplar features."""

  sharpness: ClassVar[float] = 10.0

  def scores(self, features, logits, exemplars, seen):
    """Cosines of the features and the class means."""
    means = class_means([exemplars()], seen)
    return normalize(features) @ normalize(means).T


def class_means(
  parts: Iterable[tuple[Float[np.ndarray, "n d"], Int[np.ndarray, " n"]]],
  classes: int,
) -> Float[np.ndarray, "classes d"]:
  """Mean of the normalised features of each class; zero where there is none.

  Args:
    parts: features and their classes, some at a time.
    classes: how many there are.
  """
  sums, counts = np.zeros((classes, 0), np.float32), np.zeros(classes, int)
  for features, labels in parts:
    if not sums.size:
      sums = np.zeros((classes, features.shape[1]), np.float32)
    np.add.at(sums, labels, normalize(features))
    counts += np.bincount(labels, minlength=classes)
  return sums / np.maximum(counts, 1)[:, None]
