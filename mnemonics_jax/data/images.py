"""Images in memory and images on disk, used in one way.

Images are an array, or `Stored`: rows of a `Store`, which reads them from disk.
Indexing `Stored` reads nothing; `read`, `training_view` and `np.asarray` do.

Tests, herding and exemplars see the evaluation view of an image. Training sees the
training view. It may differ from epoch to epoch (`varies`): a random part of a large
photograph, mirrored or not. It depends on the seed, the epoch and the row alone, not
on how rows are grouped into reads or on the number of workers.
"""

from collections.abc import Sequence
import dataclasses
from typing import NamedTuple, Protocol, TypeAlias, runtime_checkable
import zlib

from jaxtyping import Int, UInt8, UInt32
import numpy as np

from mnemonics_jax.data.views import random_view

Pixels = UInt8[np.ndarray, "n h w c"]
Rows = Int[np.ndarray, " n"]


class Draws(NamedTuple):
  """A generator of random numbers for each of some images, in one epoch.

  Attributes:
    seed: seed of the training.
    epoch: number of the epoch.
    rows: a number for each image, such as its row in the training data.
  """

  seed: int
  epoch: int
  rows: Rows

  def generator(self, index: int) -> np.random.Generator:
    """The generator of the image `rows[index]`."""
    # A generator counts upwards in the lowest word, so that the row stands in
    # the next: otherwise row 8 would begin with the second draws of row 7.
    counter = [0, int(self.rows[index]), 0, 0]
    key = [self.seed, self.epoch]
    return np.random.Generator(
      np.random.Philox(
        key=np.array(key, np.uint64), counter=np.array(counter, np.uint64)
      )
    )


@runtime_checkable
class Store(Protocol):
  """Where stored images are read from.

  Attributes:
    image_shape: height, width and channels of what is read.
    varies: whether training views differ from evaluation views.
  """

  @property
  def image_shape(self) -> tuple[int, int, int]: ...

  @property
  def varies(self) -> bool: ...

  def checksum(self, rows: Rows, start: int = 0) -> int:
    """A number that changes with the images of `rows`; see `checksum`."""
    ...

  def read(self, rows: Rows, draws: Draws | None = None) -> Pixels:
    """Evaluation views in the order of `rows`, or training views with `draws`."""
    ...


@dataclasses.dataclass(frozen=True, eq=False)
class Stored:
  """Some rows of a store, with the interface of an array of images.

  Attributes:
    store: reads them.
    rows: their rows in the store.
  """

  store: Store
  rows: Rows

  @property
  def shape(self) -> tuple[int, int, int, int]:
    return len(self.rows), *self.store.image_shape

  @property
  def dtype(self) -> np.dtype:
    return np.dtype(np.uint8)

  @property
  def ndim(self) -> int:
    return 4

  def __len__(self) -> int:
    return len(self.rows)

  def __getitem__(self, rows) -> "Stored":
    """A slice, a mask or numbers of rows; nothing is read."""
    return Stored(self.store, self.rows[rows])

  def __array__(self, dtype=None, copy=None) -> np.ndarray:
    if copy is False:
      raise ValueError("stored images have to be read")
    return self.store.read(self.rows).astype(dtype or np.uint8, copy=False)


Images: TypeAlias = np.ndarray | Stored
"""Images of a data set or a phase: pixels, or rows of a store."""


def read(images: Images, rows) -> Pixels:
  """Evaluation views of some rows."""
  return np.asarray(images[rows])


def training_view(
  images: Images, rows, seed: int, epoch: int, numbers=None
) -> Pixels:
  """Training views of some rows in an epoch.

  Args:
    images: all training images.
    rows: rows of `images`.
    seed: seed of the training, at least 0.
    epoch: number of the epoch.
    numbers: the `rows` of `Draws`; by default those of the images.
  """
  if isinstance(images, np.ndarray):
    return images[rows]
  numbers = np.asarray(rows if numbers is None else numbers)
  return images.store.read(
    images.rows[np.asarray(rows)], Draws(seed, epoch, numbers)
  )


def varies(images: Images) -> bool:
  """Whether training views are random, and need no augmentation."""
  return not isinstance(images, np.ndarray) and images.store.varies


def checksum(images: Images, start: int = 0) -> int:
  """A checksum of the images; stored images are not read for it.

  A store that knows the checksums of its pixels returns the checksum of the same
  images in memory.

  Args:
    images: pixels, or rows of a store.
    start: checksum of the data before them.
  """
  if isinstance(images, np.ndarray):
    return zlib.crc32(np.ascontiguousarray(images).data, start)
  return images.store.checksum(images.rows, start)


def join_checksums(
  checksums: UInt32[np.ndarray, " n"], length: int, start: int = 0
) -> int:
  """CRC-32 of many parts, one after the other, from the CRC-32 of each.

  Args:
    checksums: CRC-32 of each part.
    length: bytes of each part; all are equally long.
    start: CRC-32 of the data before them.
  """
  # Bytes after a checksum change it by a linear map, whatever they are.
  zeros = bytes(length)
  none = zlib.crc32(zeros)
  maps = [
    [zlib.crc32(zeros, byte << shift) ^ none for byte in range(256)]
    for shift in (0, 8, 16, 24)
  ]
  for part in checksums.tolist():
    low, second, third, high = start.to_bytes(4, "little")
    start = (
      maps[0][low] ^ maps[1][second] ^ maps[2][third] ^ maps[3][high] ^ part
    )
  return start


def concatenate(parts: Sequence[Images]) -> Images:
  """All rows of all parts: an array if all parts are arrays, else stored images.

  If the training views of one part vary, those of pixels in memory vary, too.
  """
  parts = [part for part in parts if len(part)] or parts[:1]
  if len(parts) == 1:
    return parts[0]
  if all(isinstance(part, np.ndarray) for part in parts):
    return np.concatenate(parts)  # pyright: ignore[reportCallIssue, reportArgumentType]
  random = any(map(varies, parts))
  together = _Concatenation(
    tuple(
      Stored(Resident(part, random), np.arange(len(part)))
      if isinstance(part, np.ndarray)
      else part
      for part in parts
    )
  )
  return Stored(together, np.arange(sum(map(len, parts))))


@dataclasses.dataclass(frozen=True, eq=False)
class Resident:
  """A store of pixels that are in memory, such as exemplars.

  Attributes:
    images: the pixels.
    varies: whether training sees random parts of them.
  """

  images: Pixels
  varies: bool = False

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Height, width and channels."""
    _, height, width, channels = self.images.shape
    return height, width, channels

  def checksum(self, rows: Rows, start: int = 0) -> int:
    """Checksum of the pixels."""
    return checksum(self.images[rows], start)

  def read(self, rows: Rows, draws: Draws | None = None) -> Pixels:
    """Images in the order of `rows`."""
    pixels = self.images[rows]
    if draws is None or not self.varies:
      return pixels
    return np.stack(
      [random_view(image, draws.generator(i)) for i, image in enumerate(pixels)]
    )


@dataclasses.dataclass(frozen=True, eq=False)
class _Concatenation:
  """The rows of several stored parts, one after the other."""

  parts: tuple[Stored, ...]

  @property
  def image_shape(self):
    return self.parts[0].store.image_shape

  @property
  def varies(self):
    return any(map(varies, self.parts))

  def checksum(self, rows, start=0):
    crc = zlib.crc32(np.ascontiguousarray(rows).data, start)
    for part in self.parts:
      crc = checksum(part, crc)
    return crc

  def read(self, rows, draws=None):
    pixels = np.empty((len(rows), *self.image_shape), np.uint8)
    first = 0
    for part in self.parts:
      mine = np.flatnonzero((rows >= first) & (rows < first + len(part)))
      if len(mine):
        drawn = draws and draws._replace(rows=draws.rows[mine])
        pixels[mine] = part.store.read(part.rows[rows[mine] - first], drawn)
      first += len(part)
    return pixels
