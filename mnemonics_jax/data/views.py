"""The training view and the evaluation view of a photograph.

Training sees a random part, resized, mirrored with probability 1/2. Tests, herding
and exemplars see the middle. Both are those of torchvision, which the papers use,
with Pillow's bilinear filter.
"""

from collections.abc import Callable
import io
import math
from typing import NamedTuple

from jaxtyping import UInt8
import numpy as np
from PIL import Image

_AREA = 0.08, 1.0  # Of a random part, as a share of the image.
_ASPECT = 3 / 4, 4 / 3  # Its width by its height, drawn log-uniformly.
_TRIES = 10


class Box(NamedTuple):
  """A part of an image, in pixels."""

  left: int
  top: int
  width: int
  height: int


def random_box(width: int, height: int, generator: np.random.Generator) -> Box:
  """A part of 8 to 100 % of the area, not far from square."""
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
  """A random part of an image, and whether to mirror it."""
  mirrored = generator.random() < 0.5
  return random_box(width, height, generator), mirrored


def random_view(
  image: UInt8[np.ndarray, "h w c"], generator: np.random.Generator
) -> UInt8[np.ndarray, "h w c"]:
  """A random part of pixels in memory, of their shape."""
  height, width, _ = image.shape
  box, mirrored = draw(width, height, generator)
  return cut(Image.fromarray(image), box, width, height, mirrored)


def cut(
  image: Image.Image, box: Box, width: int, height: int, mirrored: bool = False
) -> UInt8[np.ndarray, "h w c"]:
  """The pixels of a part of an image, made to fit."""
  left, top, w, h = box
  # Not `resize(box=...)`, whose filter reaches beyond the box.
  part = image.crop((left, top, left + w, top + h))
  pixels = np.asarray(part.resize((width, height), Image.Resampling.BILINEAR))
  return pixels[:, ::-1] if mirrored else pixels


def middle(
  image: Image.Image, size: int, shorter: int
) -> UInt8[np.ndarray, "size size c"]:
  """The central square of an image whose shorter side is resized.

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


DECODERS = {
  "pillow": "always there",
  "simplejpeg": "the same pixels, a little faster; pip install -e '.[imagenet]'",
}
"""What turns JPEG files into pixels; Pillow resizes them in any case."""

# A JPEG file can be decoded at 1/2, 1/4 or 1/8 of its size, which pays for large
# ones; twice the size that is wanted in the end keeps the detail.
_FACTORS = (8, 4, 2)
_SPARE = 2


class _File(NamedTuple):
  """An image whose header has been read; `decode` may shrink it by a factor."""

  width: int
  height: int
  decode: Callable[[int], Image.Image]


def training_view(
  encoded: bytes,
  size: int,
  generator: np.random.Generator,
  decoder: str = "pillow",
) -> UInt8[np.ndarray, "size size 3"]:
  """A random part, resized to a square, mirrored every other time.

  Args:
    encoded: a JPEG or PNG file.
    size: side of the square.
    generator: decides the part.
    decoder: one of `DECODERS`.
  """
  file = _open(encoded, decoder)
  box, mirrored = draw(file.width, file.height, generator)
  image = file.decode(_factor(min(box.width, box.height), size))
  if image.width < file.width:
    box = _scaled(box, image.width / file.width, image.height / file.height)
  return cut(image, box, size, size, mirrored)


def evaluation_view(
  encoded: bytes, size: int, decoder: str = "pillow"
) -> UInt8[np.ndarray, "size size 3"]:
  """The middle: of 224 pixels when the shorter side is resized to 256.

  Args:
    encoded: a JPEG or PNG file.
    size: side of the square; the shorter side is to it as 256 to 224.
    decoder: one of `DECODERS`.
  """
  file = _open(encoded, decoder)
  shorter = round(size * 256 / 224)
  image = file.decode(_factor(min(file.width, file.height), shorter))
  return middle(image, size, shorter)


def _factor(length: int, wanted: int) -> int:
  """The factor by which `length` pixels may shrink when `wanted` are needed."""
  enough = (f for f in _FACTORS if length // f >= _SPARE * wanted)
  return next(enough, 1)


def _scaled(box: Box, across: float, down: float) -> Box:
  left, top = int(box.left * across), int(box.top * down)
  return Box(left, top, int(box.width * across), int(box.height * down))


def _open(encoded: bytes, decoder: str) -> _File:
  if decoder == "simplejpeg" and (file := _open_simplejpeg(encoded)):
    return file
  # The header is read now, the image when it is needed. EXIF data may say that
  # it lies on its side; the code of the papers does not ask, nor do we.
  image = Image.open(io.BytesIO(encoded), formats=("JPEG", "PNG"))
  width, height = image.size

  def decode(factor: int) -> Image.Image:
    with image:
      if factor > 1:
        image.draft(None, (width // factor, height // factor))
      return image.convert("RGB")

  return _File(width, height, decode)


def _open_simplejpeg(encoded: bytes) -> _File | None:
  """None if simplejpeg cannot decode the file (CMYK, PNG)."""
  import simplejpeg  # pyright: ignore[reportMissingImports]

  try:
    height, width, colours, _ = simplejpeg.decode_jpeg_header(encoded)
    height, width = int(height), int(width)
  except ValueError:
    return None
  if colours not in ("YCbCr", "Gray"):
    return None

  def decode(factor: int) -> Image.Image:
    least = (0, 0)
    if factor > 1:
      least = -(-height // factor), -(-width // factor)
    pixels = simplejpeg.decode_jpeg(
      encoded, "RGB", min_height=least[0], min_width=least[1]
    )
    return Image.fromarray(pixels)

  return _File(width, height, decode)
