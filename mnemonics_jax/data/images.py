"""Images in memory, or read when they are asked for: one way to use both.

An array is the plain case: every function here is ordinary indexing then. The
other is `Stored`: rows of a `Store`, which reads them from disk. Taking rows of
it reads nothing; `read`, `training_view` and `np.asarray` do.

A store may have more to show than one array of pixels. Its evaluation view is
what tests, herding and exemplars see. Its training view may differ from epoch to
epoch (`varies`): a random part of a large photograph, mirrored or not. It depends
on the seed, the epoch and the row alone, so that neither the grouping of rows
into reads nor the number of workers can change it.
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
  """The random numbers of some images, in one epoch: a generator for each.

  Attributes:
    seed: of the training.
    epoch: number of the epoch.
    rows: where the images are in what is trained on, or other numbers of theirs.
  """

  seed: int
  epoch: int
  rows: Rows

  def generator(self, index: int) -> np.random.Generator:
    """That of the image `rows[index]`."""
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
    """Images in the order of `rows`: as tests see them, or as drawn."""
    ...


@dataclasses.dataclass(frozen=True, eq=False)
class Stored:
  """Some rows of a store; looks like an array of images, holds none.

  Attributes:
    store: where they are read.
    rows: which of its images these are.
  """

  store: Store
  rows: Rows

  @property
  def shape(self) -> tuple[int, int, int, int]:
    """As an array's."""
    return len(self.rows), *self.store.image_shape

  @property
  def dtype(self) -> np.dtype:
    """As an array's."""
    return np.dtype(np.uint8)

  @property
  def ndim(self) -> int:
    """As an array's."""
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
"""What a phase and a data set may have: pixels, or rows of a store."""


def read(images: Images, rows) -> Pixels:
  """Pixels of some rows, as tests, herding and exemplars see them."""
  return np.asarray(images[rows])


def training_view(
  images: Images, rows, seed: int, epoch: int, numbers=None
) -> Pixels:
  """Pixels of some rows, as an epoch of training sees them.

  Args:
    images: all that is trained on.
    rows: numbers of rows of `images`.
    seed: of the training, at least 0.
    epoch: number of the epoch.
    numbers: of the draws, which decide what is seen of a row; None are the rows'.
  """
  if isinstance(images, np.ndarray):
    return images[rows]
  numbers = np.asarray(rows if numbers is None else numbers)
  return images.store.read(
    images.rows[np.asarray(rows)], Draws(seed, epoch, numbers)
  )


def varies(images: Images) -> bool:
  """Whether training views are random already, and need no augmentation."""
  return not isinstance(images, np.ndarray) and images.store.varies


def checksum(images: Images, start: int = 0) -> int:
  """A number that changes with the images; stored ones are not read for it.

  Args:
    images: pixels, or where to read them. A store that knows the checksums of
      its pixels gives the number of the same images in memory.
    start: that of what comes before them.
  """
  if isinstance(images, np.ndarray):
    return zlib.crc32(np.ascontiguousarray(images).data, start)
  return images.store.checksum(images.rows, start)


def join_checksums(
  checksums: UInt32[np.ndarray, " n"], length: int, start: int = 0
) -> int:
  """CRC-32 of many parts, one after the other, from that of each.

  Args:
    checksums: CRC-32 of each part.
    length: bytes of each part; all are equally long.
    start: CRC-32 of what comes before them.
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
  """All rows of all parts; arrays if all parts are, otherwise not yet read.

  Training views of pixels in memory vary as soon as those of another part do:
  they are then parts of what is there.
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
    """That of the pixels."""
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
