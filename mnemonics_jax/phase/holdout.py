"""A class-balanced held-out set from old exemplars and new images (BiC)."""

from jaxtyping import Int, UInt8
import numpy as np

# Sizes differ from one argument to the next.
Labelled = tuple[UInt8[np.ndarray, "_ h w c"], Int[np.ndarray, " _"]]


def hold_out(
  rng: np.random.Generator, old: Labelled, new: Labelled, fraction: float
) -> tuple[Labelled, Labelled | None]:
  """Splits old exemplars and new images into a training and a held-out set.

  A share `fraction` of each old class's exemplars is held out, at least one
  if that leaves one to train on, and as many images of every new class.
  """
  images, labels = (
    np.concatenate(parts) for parts in zip(old, new, strict=True)
  )
  if not fraction or not len(old[1]):
    return (images, labels), None
  counts = np.bincount(old[1])
  shares = np.minimum(np.maximum(1, np.round(fraction * counts)), counts - 1)
  held = np.zeros(len(labels), bool)
  for label in np.unique(labels):
    rows = np.flatnonzero(labels == label)
    share = shares[label] if label < len(counts) else shares.max()
    held[rng.permutation(rows)[: min(int(share), len(rows) - 1)]] = True
  if not held.any():
    return (images, labels), None
  return (images[~held], labels[~held]), (images[held], labels[held])
