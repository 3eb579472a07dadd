"""The images a phase trains on, on the device, in one shape for the whole run."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Int, UInt8
import numpy as np

from mnemonics_jax.parallel import mesh


class Pool(NamedTuple):
  """Training images on the device, padded to a capacity.

  >>> pool = make_pool(np.ones((3, 8, 8, 3), np.uint8), np.arange(3), capacity=5)
  >>> pool.labels.tolist(), int(pool.count)  # Two rows of padding.
  ([0, 1, 2, 0, 0], 3)

  Attributes:
    images: uint8 pixels; devices may ask for more rows than the capacity.
    labels: class of each image.
    count: how many of the rows are real.
  """

  images: UInt8[Array, "rows h w c"]
  labels: Int[Array, " capacity"]
  count: Int[Array, ""]


def make_pool(images: np.ndarray, labels: np.ndarray, capacity: int) -> Pool:
  """Moves images to the device once, padded to `capacity`.

  Several devices have a share of the images each.

  >>> images, labels = np.ones((3, 8, 8, 3), np.uint8), np.arange(3)
  >>> make_pool(images, labels, capacity=5).images.shape
  (5, 8, 8, 3)
  """
  if not 0 < len(images) <= capacity:
    raise ValueError(f"{len(images)} images for a pool of {capacity}")
  return Pool(
    mesh.put_sharded(images, mesh.round_up(capacity)),
    mesh.put_replicated(np.pad(np.int32(labels), (0, capacity - len(labels)))),
    jnp.int32(len(images)),
  )
