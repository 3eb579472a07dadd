"""Pixels: stored as uint8, computed as floats in [0, 1], and coded as JPEG.

The JPEG here has a gradient. It follows libjpeg: separate colours, 8×8 cosine
transforms, division by the tables of a quality, rounding. Gradients pass through the
rounding unchanged, so images can adapt to the loss.
"""

import dataclasses

from jax import lax
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


# JPEG with a gradient.

# Of the standard (Annex K), for quality 50: brightness, and colour.
_BRIGHTNESS = np.array([
  [16, 11, 10, 16, 24, 40, 51, 61],
  [12, 12, 14, 19, 26, 58, 60, 55],
  [14, 13, 16, 24, 40, 57, 69, 56],
  [14, 17, 22, 29, 51, 87, 80, 62],
  [18, 22, 37, 56, 68, 109, 103, 77],
  [24, 35, 55, 64, 81, 104, 113, 92],
  [49, 64, 78, 87, 103, 121, 120, 101],
  [72, 92, 95, 98, 112, 100, 103, 99],
])  # fmt: skip
_COLOUR = np.full((8, 8), 99)
_COLOUR[:4, :4] = [
  [17, 18, 24, 47], [18, 21, 26, 66], [24, 26, 56, 99], [47, 66, 99, 99],
]  # fmt: skip
_TO_YCC = np.array([
  [0.299, 0.587, 0.114],
  [-0.168735892, -0.331264108, 0.5],
  [0.5, -0.418687589, -0.081312411],
])  # fmt: skip
_MIDDLE = np.array([0, 128, 128], np.float32)


def tables(quality: int) -> np.ndarray:
  """Divisors of the coefficients: [brightness and colour, 8, 8].

  >>> tables(50)[0, 0, :3].tolist(), tables(75)[0, 0, :3].tolist()
  ([16, 11, 10], [8, 6, 5])
  """
  scale = 5000 // quality if quality < 50 else 200 - 2 * quality
  base = np.stack([_BRIGHTNESS, _COLOUR])
  return np.clip((base * scale + 50) // 100, 1, 255)


def cosines() -> np.ndarray:
  """The orthonormal cosine transform of eight samples, one row per frequency."""
  frequency, place = np.arange(8)[:, None], np.arange(8)[None]
  waves = np.cos(np.pi * frequency * (2 * place + 1) / 16) / 2
  return np.where(frequency == 0, np.sqrt(1 / 8), waves)


@dataclasses.dataclass(frozen=True)
class JpegLoss:
  """Images as JPEG gives them back, within about a grey level of Pillow.

  Attributes:
    quality: 1 to 100.
  """

  quality: int = 75

  def __call__(
    self, images: Float[Array, "n h w c"]
  ) -> Float[Array, "n h w c"]:
    height, width, channels = images.shape[1:]
    pixels = _round(255 * images)
    if channels == 3:
      pixels = _round(pixels @ _TO_YCC.T.astype(images.dtype) + _MIDDLE)
    padding = [(0, 0), (0, -height % 8), (0, -width % 8), (0, 0)]
    parts = to_blocks(jnp.pad(pixels, padding, mode="edge") - 128)
    steps = tables(self.quality)[[0, 1, 1] if channels == 3 else [0]]
    steps = jnp.asarray(np.moveaxis(steps, 0, -1), images.dtype)[:, None]
    parts = _round(parts / steps) * steps
    pixels = _byte(from_blocks(parts) + 128)[:, :height, :width]
    if channels == 3:
      back = np.linalg.inv(_TO_YCC).T.astype(images.dtype)
      pixels = _byte((pixels - _MIDDLE) @ back)
    return pixels / 255


def to_blocks(pixels: Float[Array, "n h w c"]) -> Float[Array, "n y 8 x 8 c"]:
  """Coefficients of the 8×8 blocks of images: row and column frequencies."""
  n, height, width, channels = pixels.shape
  blocks = pixels.reshape(n, height // 8, 8, width // 8, 8, channels)
  waves = jnp.asarray(cosines(), pixels.dtype)
  return jnp.einsum("ui,nyixjc,vj->nyuxvc", waves, blocks, waves)


def from_blocks(
  parts: Float[Array, "n y 8 x 8 c"],
) -> Float[Array, "n h w c"]:
  """The images whose coefficients these are."""
  n, rows, _, columns, _, channels = parts.shape
  waves = jnp.asarray(cosines(), parts.dtype)
  blocks = jnp.einsum("ui,nyuxvc,vj->nyixjc", waves, parts, waves)
  return blocks.reshape(n, 8 * rows, 8 * columns, channels)


def low_pass(
  images: Float[Array, "n h w c"], frequencies: int
) -> Float[Array, "n h w c"]:
  """The part of images that varies slowly: low frequencies of 8×8 blocks.

  Args:
    images: any floats.
    frequencies: those whose row and column sum to less stay; 15 is all.
  """
  height, width = images.shape[1:3]
  padding = [(0, 0), (0, -height % 8), (0, -width % 8), (0, 0)]
  parts = to_blocks(jnp.pad(images, padding, mode="edge"))
  low = np.add.outer(np.arange(8), np.arange(8)) < frequencies
  parts = parts * jnp.asarray(low[:, None, :, None], images.dtype)
  return from_blocks(parts)[:, :height, :width]


def _round(x):
  """The nearest whole number; its gradient is that of `x`."""
  return x + lax.stop_gradient(jnp.round(x) - x)


def _byte(x):
  return jnp.clip(_round(x), 0, 255)
