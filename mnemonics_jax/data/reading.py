"""Decodes image files of the common formats; names those that cannot be read."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
import contextlib
import dataclasses
import errno
import io
import math
import os
from pathlib import Path
import threading
import warnings
import zlib

from jaxtyping import UInt8, UInt32
import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from mnemonics_jax.data.dataset import DataError, printable
from mnemonics_jax.data.images import Draws, Pixels, Rows, join_checksums
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import DataReport, Report, ignore

# By content, not by suffix. Formats with a longer history of exploits (EPS, PSD,
# TIFF ...) are not opened.
_FORMATS = ("PNG", "JPEG", "BMP", "WEBP")
_MODES = {1: "L", 3: "RGB"}
_MAX_PIXELS = 89_478_485  # Up to 1.1 GB while they are decoded and converted.


class _Budget:
  """A number of pixels that all threads together may decode at a time."""

  def __init__(self, pixels: int):
    self._free, self._changed = pixels, threading.Condition()

  @contextlib.contextmanager
  def taken(self, pixels: int) -> Iterator[None]:
    """Waits until so many are free, and gives them back after the block."""
    with self._changed:
      self._changed.wait_for(lambda: self._free >= pixels)
      self._free -= pixels
    try:
      yield
    finally:
      with self._changed:
        self._free += pixels
        self._changed.notify_all()


# Threads decode many photographs at a time, but one image of the largest size.
_BUDGET = _Budget(_MAX_PIXELS)


def decode(
  path: Path, shape: int | tuple[int, int, int]
) -> UInt8[np.ndarray, "h w c"]:
  """Decodes an image: upright, on white, resized and cropped to the shape.

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
  if not path.is_file():  # A pipe would block, a device never end.
    raise OSError("not a regular file")
  with _open(path, _FORMATS) as image:
    # JPEG can decode at 1/2, 1/4, 1/8 size; twice the target keeps detail.
    image.draft(None, (2 * width, 2 * height))
    with _BUDGET.taken(image.width * image.height):
      image.load()
      rgb = _to_rgb(_upright(image))
      fit = ImageOps.fit(rgb, (width, height), Image.Resampling.LANCZOS)
      pixels = np.asarray(fit.convert(_MODES[channels]))
  return pixels.reshape(height, width, channels)


def check(encoded: bytes) -> None:
  """Decodes a JPEG or PNG file to its end, as small as that can be done.

  Raises:
    Exception: of any kind, if this is not a readable image of sane size.
  """
  with _open(io.BytesIO(encoded), ("JPEG", "PNG")) as image:
    image.draft(None, (image.width // 8 or 1, image.height // 8 or 1))
    with _BUDGET.taken(image.width * image.height):
      image.load()
    # Pillow takes the zeros of a file that was half copied for pixels.
    content = encoded.rstrip(b"\0")
    ended = image.format != "JPEG" or content.endswith(b"\xff\xd9")
    if content != encoded and not ended:
      raise ValueError("its end is missing")


def _open(file: Path | io.BytesIO, formats: tuple[str, ...]) -> Image.Image:
  image = Image.open(file, formats=formats)
  if image.width * image.height > _MAX_PIXELS:
    image.close()
    raise ValueError(f"{image.width}×{image.height} pixels are too many")
  return image


@contextlib.contextmanager
def threads() -> Iterator[ThreadPoolExecutor]:
  """Threads that decode: Pillow decodes and resizes outside the interpreter lock."""
  pool = ThreadPoolExecutor(os.cpu_count())
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PIL's remarks on odd but readable files.
    try:
      yield pool
    finally:
      pool.shutdown(cancel_futures=True)


def reason(error: Exception) -> str:
  """What is wrong with an image file, in a few printable words."""
  if isinstance(error, UnidentifiedImageError):
    return "not a PNG, JPEG, BMP or WebP image"
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  return printable(str(error)) or type(error).__name__


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


# Errors of disks and networks. They must not make images count as damaged: the data
# set would depend on them.
_TRANSIENT = (
  errno.EIO,
  errno.ESTALE,
  errno.ETIMEDOUT,
  errno.EMFILE,
  errno.ENFILE,
)


_REASON = "S200"  # Bytes, because processes exchange them.
_AT_A_TIME = 4096


def read_images(
  files: Sequence[Path],
  image_shape: tuple[int, int, int],
  *,
  report: Report = ignore,
  share: Share = Share(),
) -> tuple[UInt8[np.ndarray, "n h w c"], list[str]]:
  """Decodes all images; says for each file what is wrong with it ('' if nothing).

  Grey, palette, CMYK, transparent, rotated and differently sized images become
  upright images of one shape, as in a folder that is learned.

  Args:
    files: PNG, JPEG, BMP or WebP.
    image_shape: height, width and channels of all.
    report: is called with the progress of decoding.
    share: the images that this process decodes.
  """
  images = np.zeros((len(files), *image_shape), np.uint8)

  def decode_into(index: int) -> None:
    images[index] = decode(files[index], image_shape)

  problems = _problems(files, decode_into, report, share)
  share.all_gather_rows(images)
  return images, problems


def examine(
  files: Sequence[Path],
  image_shape: tuple[int, int, int],
  *,
  report: Report = ignore,
  share: Share = Share(),
) -> tuple[UInt32[np.ndarray, " n"], list[str]]:
  """Decodes all images; returns the CRC-32 of each, and what is wrong with it.

  The arguments are those of `read_images`.
  """
  checksums = np.zeros(len(files), np.uint32)

  def note_checksum(index: int) -> None:
    checksums[index] = zlib.crc32(decode(files[index], image_shape).data)

  problems = _problems(files, note_checksum, report, share)
  share.all_gather_rows(checksums)
  return checksums, problems


def _problems(
  files: Sequence[Path],
  use: Callable[[int], None],
  report: Report,
  share: Share,
) -> list[str]:
  """Calls `use` with the number of each file; returns what is wrong with each."""
  problems = np.zeros(len(files), _REASON)
  assigned = share.rows(len(files))

  def note_problem(index: int) -> None:
    try:
      use(index)
    except Exception as error:  # Damaged files raise exceptions of any kind.
      if getattr(error, "errno", None) in _TRANSIENT:
        raise DataError(
          "data_dir",
          f"`data_dir`: {printable(str(files[index]))} cannot be read now"
          f" ({reason(error)})",
          "try again when the disk answers",
        ) from error
      problems[index] = reason(error).encode()

  with threads() as pool:
    # Some at a time: those that wait take memory, too.
    for first in range(0, len(assigned), _AT_A_TIME):
      some = assigned[first : first + _AT_A_TIME]
      for done, _ in enumerate(pool.map(note_problem, some), start=first + 1):
        report(DataReport(done, len(assigned)))
  share.all_gather_rows(
    problems.view(np.uint8).reshape(len(files), problems.itemsize)
  )
  return [problem.decode(errors="ignore") for problem in problems]


@dataclasses.dataclass(frozen=True, eq=False)
class ImageFiles:
  """A store that decodes image files whenever they are read.

  Attributes:
    files: PNG, JPEG, BMP or WebP.
    image_shape: height, width and channels of all.
    checksums: CRC-32 of each image.
    varies: training views are evaluation views.
  """

  files: Sequence[Path]
  image_shape: tuple[int, int, int]
  checksums: UInt32[np.ndarray, " n"]
  varies: bool = False

  def checksum(self, rows: Rows, start: int = 0) -> int:
    """Checksum of the same images in memory."""
    length = math.prod(self.image_shape)
    return join_checksums(self.checksums[rows], length, start)

  def read(self, rows: Rows, draws: Draws | None = None) -> Pixels:
    """Images in the order of `rows`."""
    del draws
    files = [self.files[row] for row in rows]
    images, problems = read_images(files, self.image_shape)
    for row, pixels, problem in zip(rows, images, problems, strict=True):
      if not problem and zlib.crc32(pixels.data) != self.checksums[row]:
        problem = "its pixels are no longer those of the first look"
      if problem:
        raise DataError(
          "data_dir",
          f"`data_dir`: {printable(str(self.files[row]))} has changed since the"
          f" start ({problem})",
          "restore it, and run it again to continue",
        )
    return images
