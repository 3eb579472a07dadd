"""Data sets: a name and perhaps a directory become verified uint8 arrays.

>>> from mnemonics_jax import data
>>> digits = data.load("digits")
>>> digits.train_images.shape, digits.train_images.dtype
((1442, 8, 8, 3), dtype('uint8'))
"""

from collections.abc import Iterator
import contextlib
import os

from mnemonics_jax.data.dataset import DataError as DataError
from mnemonics_jax.data.dataset import Dataset as Dataset
from mnemonics_jax.data.dataset import Progress as Progress
from mnemonics_jax.data.dataset import verify as verify
from mnemonics_jax.data.share import Share as Share

NAMES = ("digits", "cifar100", "folder")


def load(
  name: str,
  data_dir: str | os.PathLike | None = None,
  *,
  download: bool = False,
  image_size: int | None = None,
  val_fraction: float = 0.2,
  strict: bool = False,
  seed: int = 0,
  cache_dir: str | os.PathLike | None = None,
  progress: Progress | None = None,
  share: Share = Share(),
) -> Dataset:
  """Loads and verifies a data set.

  Args:
    name: `digits`, `cifar100` or `folder`.
    data_dir: where to look; `digits` needs none, `cifar100` has defaults.
    download: whether `cifar100` may be fetched from the network.
    image_size: side of the images of a `folder`; the others have their own.
    val_fraction: part of each class held out of a `folder` without `val/`.
    strict: whether an unreadable image in a `folder` is an error.
    seed: decides which images of a `folder` are held out.
    cache_dir: where decoded arrays are kept; `~/.cache/mnemonics_jax` if None.
    progress: called with (done, total) while images are decoded.
    share: which part of the images this process decodes, if several do it
      together; each returns all of them.

  Raises:
    DataError: with a message for the user that names the flag and the fix.
  """
  # Each source is imported when asked for: a message about a missing directory
  # should not wait for libraries that read images.
  flag = "--data" if name == "folder" else "--data_dir"
  with share.together(), _explaining(f"{flag}={data_dir}"):
    if name == "digits":
      from mnemonics_jax.data import digits

      _expect_size(name, image_size, 8)
      dataset = digits.load()
    elif name == "cifar100":
      from mnemonics_jax.data import cifar100

      _expect_size(name, image_size, 32)
      dataset = cifar100.load(
        data_dir,
        fetch=download,
        cache_dir=cache_dir,
        progress=progress,
        share=share,
      )
    elif name == "folder":
      from mnemonics_jax.data import folder

      dataset = folder.load(
        data_dir,
        image_size=64 if image_size is None else image_size,
        val_fraction=val_fraction,
        strict=strict,
        seed=seed,
        cache_dir=cache_dir,
        progress=progress,
        share=share,
      )
    else:
      raise DataError(f"Unknown data set {name!r}; choose {', '.join(NAMES)}.")
    return verify(dataset)


@contextlib.contextmanager
def _explaining(source: str) -> Iterator[None]:
  """Trouble of the system in words for the user."""
  try:
    yield
  except OSError as error:
    raise DataError(
      f"{source}: cannot read {error.filename or 'it'} "
      f"({error.strerror or error}); check the path and its permissions."
    ) from error


def _expect_size(name: str, image_size: int | None, own: int) -> None:
  if image_size not in (None, own):
    raise DataError(
      f"--image_size={image_size}: {name} images are {own}×{own}; leave the "
      "flag out."
    )
