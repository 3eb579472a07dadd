"""One image file of any common kind to uint8 pixels of one size."""

from pathlib import Path

from jaxtyping import UInt8
import numpy as np
from PIL import Image, ImageOps

# Content decides, not the suffix; formats with a longer history of exploits
# (EPS, PSD, TIFF ...) are not opened at all.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_MODES = {1: "L", 3: "RGB"}
_MAX_PIXELS = 89_478_485  # A quarter of a gigabyte as RGB.


def decode(
  path: Path, shape: int | tuple[int, int, int]
) -> UInt8[np.ndarray, "h w c"]:
  """Upright, on white, resized to cover the shape, centre cropped.

  Args:
    path: of the file.
    shape: height, width, channels (3, or 1 for grey); a number is the side of a
      square of RGB.

  Raises:
    Exception: of any kind, if this is not a readable image of sane size.
  """
  height, width, channels = (
    (shape, shape, 3) if isinstance(shape, int) else shape
  )
  if channels not in _MODES:
    raise ValueError(f"a file has no image of {channels} channels")
  with _open(path) as image:
    # JPEG can decode at 1/2, 1/4, 1/8 size; twice the target keeps detail.
    image.draft(None, (2 * width, 2 * height))
    image.load()
    rgb = _to_rgb(_upright(image))
    fit = ImageOps.fit(rgb, (width, height), Image.Resampling.LANCZOS)
    pixels = np.asarray(fit.convert(_MODES[channels]))
  return pixels.reshape(height, width, channels)


def _open(path: Path) -> Image.Image:
  if not path.is_file():  # A pipe would block, a device never end.
    raise OSError("not a regular file")
  image = Image.open(path, formats=_FORMATS)
  if image.width * image.height > _MAX_PIXELS:
    image.close()
    raise ValueError(f"{image.width}×{image.height} pixels are too many")
  return image


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
