"""Herding: a few images whose mean feature is that of their class."""

from jaxtyping import Float, Int
import numpy as np


def normalize(x: Float[np.ndarray, "... d"]) -> Float[np.ndarray, "... d"]:
  """x / ‖x‖ along the last axis; zeros stay zeros."""
  return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def herding(
  features: Float[np.ndarray, "n d"],
  count: int,
  toward: Float[np.ndarray, "m d"] | None = None,
) -> Int[np.ndarray, " count"]:
  """Greedy choice whose running mean follows the class mean (Welling 2009).

  On normalised features x with mean μ: pick argmax w·x, then w ← w + μ − x.
  No image is picked twice; a shorter run is a prefix of a longer one.

  Args:
    features: of the candidates.
    count: how many are picked.
    toward: features whose mean is followed; None is the candidates' own.
  """
  x = np.asarray(normalize(features), np.float64)
  mean = x.mean(0)
  if toward is not None:
    mean = np.asarray(normalize(toward), np.float64).mean(0)
  weight, free, picks = mean.copy(), np.ones(len(x), bool), []
  for _ in range(min(count, len(x))):
    pick = int(np.argmax(np.where(free, x @ weight, -np.inf)))
    picks.append(pick)
    free[pick] = False
    weight += mean - x[pick]
  return np.asarray(picks, np.int64)
