"""The file of a photograph to pixels, as training or as tests see it."""

from collections.abc import Callable
import io
from typing import NamedTuple

from jaxtyping import UInt8
import numpy as np
from PIL import Image

from mnemonics_jax.data import crops

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
  """A file whose header has been read.

  Attributes:
    width: of the image.
    height: of the image.
    decode: gives it, smaller by a factor if that can be had.
  """

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
  box, mirrored = crops.draw(file.width, file.height, generator)
  image = file.decode(_factor(min(box.width, box.height), size))
  if image.width < file.width:
    box = _scaled(box, image.width / file.width, image.height / file.height)
  return crops.cut(image, box, size, size, mirrored)


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
  return crops.middle(image, size, shorter)


def _factor(length: int, wanted: int) -> int:
  """How much smaller an image may be decoded of which `length` is needed."""
  enough = (f for f in _FACTORS if length // f >= _SPARE * wanted)
  return next(enough, 1)


def _scaled(box: crops.Box, across: float, down: float) -> crops.Box:
  left, top = int(box.left * across), int(box.top * down)
  return crops.Box(left, top, int(box.width * across), int(box.height * down))


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
  """None for what it cannot decode: CMYK, PNG."""
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
