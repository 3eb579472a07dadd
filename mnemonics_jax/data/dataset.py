"""A data set, what makes it valid, and the error when it is not."""

import dataclasses
import functools
import os
from pathlib import Path

from jaxtyping import Int32
import numpy as np

from mnemonics_jax.data.images import Images, checksum
from mnemonics_jax.errors import UserError


class DataError(UserError):
  """Data that cannot be used, or a request for data that cannot be met."""


MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's training images, per channel: used for any photographs."""

_SIZES = 8, 1024  # Sides of the squares that photographs become.


def check_image_size(image_size: int) -> None:
  """Refuses sides of squares that are too small or too large."""
  least, most = _SIZES
  if not least <= image_size <= most:
    raise DataError(
      "image_size",
      f"`image_size={image_size}` cannot be used",
      f"choose {least} to {most} pixels",
    )


def printable(name: str | Path) -> str:
  """The name with control characters and undecodable bytes escaped."""
  return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(name))


def data_directory(data_dir: str | os.PathLike | None) -> Path:
  """The directory to look in: `data_dir`, or a default if it is empty."""
  chosen = data_dir or os.environ.get("MNEMONICS_DATA_DIR")
  return Path(os.path.expanduser(chosen or "~/tensorflow_datasets"))


def first_line(error: object) -> str:
  """The first line of an error's message; some libraries write pages."""
  return str(error).splitlines()[0] if str(error) else repr(error)


@dataclasses.dataclass(frozen=True)
class Dataset:
  """Images and labels of one data set, as read; `verify` checks one of your own.

  Attributes:
    name: what `mnemonics_jax.data.SOURCES` calls it.
    train_images: pixels 0..255, or where to read them.
    train_labels: index into `class_names` of each training image.
    test_images: pixels 0..255, or where to read them.
    test_labels: index into `class_names` of each test image.
    class_names: one name per class, printable.
    mean: per channel, of pixels scaled to [0, 1]; for normalisation.
    std: per channel, of pixels scaled to [0, 1]; for normalisation.
    notes: sentences for the user, such as which files were skipped.
    departures: how it differs from the data set of that name in papers.
  """

  name: str
  train_images: Images
  train_labels: Int32[np.ndarray, " n"]
  test_images: Images
  test_labels: Int32[np.ndarray, " m"]
  class_names: tuple[str, ...]
  mean: tuple[float, ...]
  std: tuple[float, ...]
  notes: tuple[str, ...] = ()
  departures: tuple[str, ...] = ()

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Height, width and channels."""
    _, height, width, channels = self.train_images.shape
    return height, width, channels

  @functools.cached_property
  def checksum(self) -> int:
    """A number that changes with the images and labels."""
    crc = 0
    for array in (
      self.train_images, self.train_labels, self.test_images, self.test_labels
    ):  # fmt: skip
      crc = checksum(array, crc)
    return crc


def verify(
  dataset: Dataset, source: str | None = None, least_classes: int = 2
) -> Dataset:
  """Returns the data set if counts, shapes, types and ranges are right.

  Args:
    dataset: images and labels.
    source: where the data come from, for messages.
    least_classes: how many there must be.
  """
  source = source or f"The data set {dataset.name}"

  def require(condition: bool | np.bool_, problem: str) -> None:
    if not condition:
      raise DataError(
        "data_dir",
        f"{source} cannot be used: {problem}",
        "repair or replace the data",
      )

  names = dataset.class_names
  require(
    len(names) >= least_classes,
    f"it has {len(names)} classes, {least_classes} are the minimum",
  )
  require(len(set(names)) == len(names), "two classes have the same name")
  for split in ("train", "test"):
    images = getattr(dataset, f"{split}_images")
    labels = getattr(dataset, f"{split}_labels")
    require(
      images.dtype == np.uint8,
      f"{split} images are {images.dtype}, pixels must be uint8 in 0..255",
    )
    require(
      images.ndim == 4 and images.shape[-1] == 3,
      f"{split} images have shape {images.shape}, expected [n, h, w, 3]",
    )
    require(
      labels.dtype == np.int32 and labels.shape == images.shape[:1],
      f"{len(images)} {split} images have labels {labels.dtype}{labels.shape}",
    )
    require(len(images) > 0, f"there are no {split} images")
    require(
      bool(labels.min() >= 0 and labels.max() < len(names)),
      f"{split} labels are {labels.min()}..{labels.max()}, "
      f"expected 0..{len(names) - 1}",
    )
    counts = np.bincount(labels, minlength=len(names))
    missing = [
      name for name, count in zip(names, counts, strict=True) if not count
    ]
    require(not missing, f"no {split} image of {', '.join(missing[:5])}")
    # Pixels that were divided by 255 before the cast are all 0 or 1.
    if isinstance(images, np.ndarray):
      require(bool(images.max() > 1), f"all {split} pixels are black")
  require(
    dataset.train_images.shape[1:] == dataset.test_images.shape[1:],
    "train and test images differ in size",
  )
  channels = dataset.train_images.shape[-1]
  require(
    len(dataset.mean) == len(dataset.std) == channels
    and bool(np.isfinite((dataset.mean, dataset.std)).all())
    and min(dataset.std) > 0,
    "mean and std need one finite value per channel, std positive",
  )
  return dataset
