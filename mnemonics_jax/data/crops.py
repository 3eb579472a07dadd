"""The two views of a photograph that ImageNet is learned and tested with.

Training sees a random part of it, resized, mirrored every other time; tests,
herding and exemplars see its middle. Both as torchvision makes them, which the
papers use, with Pillow's bilinear filter.
"""

import math
from typing import NamedTuple

from jaxtyping import UInt8
import numpy as np
from PIL import Image

_AREA = 0.08, 1.0  # Of a random part, as a share of the image.
_ASPECT = 3 / 4, 4 / 3  # Its width by its height, drawn log-uniformly.
_TRIES = 10


class Box(NamedTuple):
  """A part of an image, in its pixels.

  Attributes:
    left: first column.
    top: first row.
    width: number of columns.
    height: number of rows.
  """

  left: int
  top: int
  width: int
  height: int


def random_box(width: int, height: int, generator: np.random.Generator) -> Box:
  """A part of 8 to 100 % of the area, not far from square.

  >>> random_box(500, 375, np.random.default_rng(0))
  Box(left=302, top=187, width=129, height=171)
  """
  area = width * height
  for _ in range(_TRIES):
    target = area * _between(*_AREA, generator.random())
    low, high = map(math.log, _ASPECT)
    aspect = math.exp(_between(low, high, generator.random()))
    w = round(math.sqrt(target * aspect))
    h = round(math.sqrt(target / aspect))
    if 0 < w <= width and 0 < h <= height:
      left = int(generator.random() * (width - w + 1))
      top = int(generator.random() * (height - h + 1))
      return Box(left, top, w, h)
  # A panorama: as much of its middle as is not too far from square.
  low, high = _ASPECT
  w = min(width, round(height * high))
  h = min(height, round(width / low))
  return Box((width - w) // 2, (height - h) // 2, w, h)


def _between(low, high, share):
  return low + (high - low) * share


def draw(
  width: int, height: int, generator: np.random.Generator
) -> tuple[Box, bool]:
  """A random part of an image, and whether to mirror it.

  >>> box, mirrored = draw(500, 375, np.random.default_rng(0))
  >>> mirrored
  False
  """
  mirrored = generator.random() < 0.5
  return random_box(width, height, generator), mirrored


def random_view(
  image: UInt8[np.ndarray, "h w c"], generator: np.random.Generator
) -> UInt8[np.ndarray, "h w c"]:
  """A random part of pixels in memory, of their shape.

  >>> image = np.zeros((8, 8, 3), np.uint8)
  >>> random_view(image, np.random.default_rng(0)).shape
  (8, 8, 3)
  """
  height, width, _ = image.shape
  box, mirrored = draw(width, height, generator)
  return cut(Image.fromarray(image), box, width, height, mirrored)


def cut(
  image: Image.Image, box: Box, width: int, height: int, mirrored: bool = False
) -> UInt8[np.ndarray, "h w c"]:
  """The pixels of a part of an image, made to fit.

  >>> cut(Image.new("RGB", (20, 10)), Box(5, 0, 10, 10), 8, 8).shape
  (8, 8, 3)
  """
  left, top, w, h = box
  # Not `resize(box=...)`, whose filter reaches beyond the box.
  part = image.crop((left, top, left + w, top + h))
  pixels = np.asarray(part.resize((width, height), Image.Resampling.BILINEAR))
  return pixels[:, ::-1] if mirrored else pixels


def middle(
  image: Image.Image, size: int, shorter: int
) -> UInt8[np.ndarray, "size size c"]:
  """The central square of an image whose shorter side is resized.

  >>> middle(Image.new("RGB", (50, 40)), size=28, shorter=32).shape
  (28, 28, 3)

  Args:
    image: of any size.
    size: side of the square.
    shorter: length of the shorter side before the square is cut out.
  """
  width, height = image.size
  least = min(width, height)
  # The longer side is rounded down, the corner to the nearest even number.
  width, height = shorter * width // least, shorter * height // least
  image = image.resize((width, height), Image.Resampling.BILINEAR)
  left, top = round((width - size) / 2), round((height - size) / 2)
  return np.asarray(image.crop((left, top, left + size, top + size)))
