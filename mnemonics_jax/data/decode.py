"""One image file of any common kind to square uint8 RGB."""

from pathlib import Path

from jaxtyping import UInt8
import numpy as np
from PIL import Image, ImageOps

# Content decides, not the suffix; formats with a longer history of exploits
# (EPS, PSD, TIFF ...) are not opened at all.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_MAX_PIXELS = 89_478_485  # A quarter of a gigabyte as RGB.


def decode(path: Path, size: int) -> UInt8[np.ndarray, "size size 3"]:
  """Upright, on white, shorter side resized to `size`, centre cropped.

  Raises:
    Exception: of any kind, if this is not a readable image of sane size.
  """
  if not path.is_file():  # A pipe would block, a device never end.
    raise OSError("not a regular file")
  with Image.open(path, formats=_FORMATS) as image:
    if image.width * image.height > _MAX_PIXELS:
      raise ValueError(f"{image.width}×{image.height} pixels are too many")
    # JPEG can decode at 1/2, 1/4, 1/8 size; twice the target keeps detail.
    image.draft(None, (2 * size, 2 * size))
    image.load()
    rgb = _to_rgb(_upright(image))
    square = ImageOps.fit(rgb, (size, size), Image.Resampling.LANCZOS)
  return np.asarray(square)


def _upright(image: Image.Image) -> Image.Image:
  try:
    return ImageOps.exif_transpose(image)
  except Exception:  # Damaged EXIF data say nothing about the pixels.
    return image


def _to_rgb(image: Image.Image) -> Image.Image:
  if image.mode.startswith("I"):  # 16 bits per pixel; convert() would clip.
    pixels = np.asarray(image).astype(np.float32) / 257
    image = Image.fromarray(np.rint(pixels.clip(0, 255)).astype(np.uint8))
  if image.mode in ("RGBA", "LA", "PA") or "transparency" in image.info:
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    image = Image.alpha_composite(white, image)
  return image.convert("RGB")
