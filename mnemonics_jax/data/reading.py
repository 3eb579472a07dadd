"""Many image files to one array of pixels; what cannot be read is named."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
import errno
import os
from pathlib import Path
import warnings

from jaxtyping import UInt8
import numpy as np

from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.listing import printable
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import DataReport, Report, ignore

# Trouble of disks and networks. A data set without the images that it hit would
# be another one.
_TRANSIENT = (
  errno.EIO,
  errno.ESTALE,
  errno.ETIMEDOUT,
  errno.EMFILE,
  errno.ENFILE,
)


_REASON = "S200"  # Bytes, because processes exchange them.


def read_images(
  files: Sequence[Path],
  image_shape: tuple[int, int, int],
  *,
  report: Report = ignore,
  share: Share = Share(),
) -> tuple[UInt8[np.ndarray, "n h w c"], list[str]]:
  """All images, and for each file what is wrong with it ('' if nothing).

  Grey, palette, CMYK, transparent, rotated and differently sized images all
  become upright ones of one shape, as the images of a folder that is learned.

  >>> from PIL import Image
  >>> Image.new("CMYK", (20, 10), (0, 255, 255, 0)).save("red.jpg")
  >>> _ = Path("text.png").write_text("no image")
  >>> images, problems = read_images([Path("red.jpg"), Path("text.png")], (8, 8, 3))
  >>> images.shape, problems
  ((2, 8, 8, 3), ['', 'not a PNG, JPEG, BMP or WebP image'])

  Args:
    files: PNG, JPEG, BMP or WebP.
    image_shape: height, width and channels of all.
    report: hears how far decoding has come.
    share: which images this process decodes.
  """
  from mnemonics_jax.data.decode import decode

  images = np.zeros((len(files), *image_shape), np.uint8)
  problems = np.zeros(len(files), _REASON)
  assigned = share.rows(len(files))

  def decode_into(index: int) -> None:
    try:
      images[index] = decode(files[index], image_shape)
    except Exception as error:  # Damaged files raise exceptions of any kind.
      if getattr(error, "errno", None) in _TRANSIENT:
        raise DataError(
          "data_dir",
          f"`data_dir`: {printable(str(files[index]))} cannot be read now"
          f" ({_reason(error)})",
          "try again when the disk answers",
        ) from error
      problems[index] = _reason(error).encode()

  # Threads pay: PIL decodes and resizes outside the interpreter lock.
  pool = ThreadPoolExecutor(os.cpu_count())
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PIL's remarks on odd but readable files.
    try:
      for done, _ in enumerate(pool.map(decode_into, assigned), start=1):
        report(DataReport(done, len(assigned)))
    finally:
      pool.shutdown(cancel_futures=True)
  share.all_gather_rows(images)
  share.all_gather_rows(problems.view(np.uint8).reshape(len(files), problems.itemsize))
  return images, [problem.decode(errors="ignore") for problem in problems]


def _reason(error: Exception) -> str:
  if type(error).__name__ == "UnidentifiedImageError":
    return "not a PNG, JPEG, BMP or WebP image"
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  return printable(str(error)) or type(error).__name__
