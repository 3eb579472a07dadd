"""Photographs in shards: where they are read, and the views one gets of them."""

from collections.abc import Callable
import dataclasses
import functools
from pathlib import Path
from typing import Any
import zlib

from jaxtyping import Shaped, UInt8
import numpy as np

from mnemonics_jax.data import imagenet_files, photographs, tfds_records
from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.images import Draws, Pixels, Rows

Table = Shaped[np.ndarray, " n"]
"""Rows of `imagenet_files.ROW`."""

# A read is of one image: nothing that follows it is wanted.
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


@dataclasses.dataclass(frozen=True, eq=False)
class Shards:
  """The files of a prepared directory, opened when they are needed.

  Attributes:
    directory: where they are.
    files: their names, by number.
    size: side of the square views.
    decoder: one of `photographs.DECODERS`.
  """

  directory: Path
  files: tuple[str, ...]
  size: int
  decoder: str = "pillow"

  def views(self, rows: Table, draws: Draws | None = None) -> Pixels:
    """Images as tests see them, or as they are drawn.

    Args:
      rows: of `imagenet_files.ROW`.
      draws: the random numbers of each.
    """
    pixels = np.empty((len(rows), self.size, self.size, 3), np.uint8)
    for i, row in enumerate(rows):
      pixels[i] = self._view(row, draws and draws.generator(i))
    return pixels

  def _view(self, row, generator) -> UInt8[np.ndarray, "h w c"]:
    encoded = self.encoded(row)
    try:
      if generator is None:
        return photographs.evaluation_view(encoded, self.size, self.decoder)
      return photographs.training_view(
        encoded, self.size, generator, self.decoder
      )
    except Exception as error:  # Damaged files raise exceptions of any kind.
      raise self._unreadable(row, error) from error

  def encoded(self, row: Any) -> bytes:
    """An image as the file that it was, which must be the one it was.

    Args:
      row: of `imagenet_files.ROW`.
    """
    try:
      (record,) = self._reader(int(row["shard"])).read([int(row["position"])])
      (encoded,) = tfds_records.features(record)["image"].bytes_list.value
    except Exception as error:  # array_record and protobuf raise anything.
      raise self._unreadable(row, error) from error
    if zlib.crc32(encoded) != row["crc"]:
      raise self._unreadable(row, "its checksum is wrong")
    return encoded

  def _reader(self, shard: int) -> Any:
    return self._readers[shard]

  @functools.cached_property
  def _readers(self):
    return _Readers(self.directory, self.files)

  def _unreadable(self, row, reason: object) -> DataError:
    said = str(reason).splitlines()[0] if str(reason) else repr(reason)
    return DataError(
      "data_dir",
      f"`data_dir`: image {row['position']} of"
      f" {self.directory / self.files[row['shard']]} cannot be read ({said})",
      imagenet_files.REPAIR,
    )


class _Readers(dict):
  """Readers by number of their shard, each made when it is first asked for."""

  def __init__(self, directory: Path, files: tuple[str, ...]):
    super().__init__()
    self._directory, self._files = directory, files

  def __missing__(self, shard: int):
    from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

    self[shard] = array_record_module.ArrayRecordReader(
      str(self._directory / self._files[shard]), _READER_OPTIONS
    )
    return self[shard]


@dataclasses.dataclass(frozen=True, eq=False)
class Photographs:
  """A store of images in shards, of which training sees random parts.

  Attributes:
    views: reads them: `Shards.views`, or `workers.Pool.views`.
    table: shard, position and checksum of each image (`imagenet_files.ROW`).
    size: side of the square views.
  """

  views: Callable[[Table, Draws | None], Pixels]
  table: Table
  size: int

  @property
  def image_shape(self) -> tuple[int, int, int]:
    """Height, width and channels."""
    return self.size, self.size, 3

  @property
  def varies(self) -> bool:
    """Training views are random parts."""
    return True

  def checksum(self, rows: Rows, start: int = 0) -> int:
    """Changes with the files of the images, their order and the size of views."""
    crcs = np.append(self.table["crc"][rows], np.uint32(self.size))
    return zlib.crc32(np.ascontiguousarray(crcs).data, start)

  def read(self, rows: Rows, draws: Draws | None = None) -> Pixels:
    """Images in the order of `rows`: their middle, or random parts."""
    return self.views(self.table[rows], draws)
