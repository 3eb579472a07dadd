"""The two forms of an image: stored (uint8) and computed with (float in [0, 1])."""

import jax.numpy as jnp
from jaxtyping import Array, Float, Num, UInt8
import numpy as np


def from_uint8(
  images: Num[Array | np.ndarray, "..."],
) -> Float[Array, "..."]:
  """Stored pixels as float32 in [0, 1]; floats pass unchanged.

  >>> images = np.array([0, 51, 255], np.uint8)
  >>> [round(pixel, 4) for pixel in from_uint8(images).tolist()]
  [0.0, 0.2, 1.0]
  """
  images = jnp.asarray(images)
  if images.dtype != jnp.uint8:
    return images
  return images.astype(jnp.float32) / 255


def to_uint8(
  images: Num[Array | np.ndarray, "..."],
) -> UInt8[Array, "..."]:
  """Pixels in [0, 1] as they are stored: rounded and clipped.

  The identity on images that came from `from_uint8` and were not touched;
  uint8 passes unchanged.

  >>> to_uint8(jnp.array([-0.1, 0.2, 0.999, 1.5])).tolist()
  [0, 51, 255, 255]
  """
  images = jnp.asarray(images)
  if images.dtype == jnp.uint8:
    return images
  return jnp.clip(jnp.round(images * 255), 0, 255).astype(jnp.uint8)
