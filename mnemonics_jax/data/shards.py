"""The files of a prepared ImageNet, and reading images from them.

  train-00000-of-00130.array_record   records as TensorFlow Datasets has them:
  ...                                 image (the file as it was), label, file_name
  shards.jsonl                        a line for each complete file: its checksum,
                                      names and classes of its images
  index.json                          classes, counts, checksums; written last
  train.npy, validation.npy           label, shard, position and CRC-32 of every
                                      image, sorted by class and name

Shards are uncompressed with one record in a group, so that an image is one read.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
import contextlib
import dataclasses
import functools
import hashlib
import itertools
import json
import os
from pathlib import Path
from typing import Any, NamedTuple
import zlib

from jaxtyping import Shaped, UInt8
import numpy as np

from mnemonics_jax import files
from mnemonics_jax.data import records, views
from mnemonics_jax.data.dataset import DataError, first_line, printable
from mnemonics_jax.data.images import Draws, Pixels, Rows

SPLITS = ("train", "validation")
FORMAT = 1
WRITER_OPTIONS = "group_size:1,uncompressed"
REPAIR = (
  "repeat `python -m mnemonics_jax.data.prepare`, which keeps what is good"
)

ROW = np.dtype(
  [("label", "<i4"), ("shard", "<i4"), ("position", "<i4"), ("crc", "<u4")]
)
"""An image: its class, where it is, and the CRC-32 of its file."""


class Shard(NamedTuple):
  """A complete file of records.

  Attributes:
    file: its name.
    split: `train` or `validation`.
    origin: a hash of its source.
    size: its bytes.
    sha256: checksum of the file.
    names: names of the image files, by position.
    wnids: their classes.
    crcs: their CRC-32.
  """

  file: str
  split: str
  origin: str
  size: int
  sha256: str
  names: Sequence[str]
  wnids: Sequence[str]
  crcs: Sequence[int]


class Index(NamedTuple):
  """The contents of a complete directory.

  Attributes:
    directory: its path.
    dataset: name of the data set.
    reduced: whether the user accepted that classes or images are missing.
    wnids: its classes, sorted; labels are their numbers.
    files: names of the shards, by number.
    rows: for each split an array of `ROW`.
  """

  directory: Path
  dataset: str
  reduced: bool
  wnids: tuple[str, ...]
  files: tuple[str, ...]
  rows: Mapping[str, np.ndarray]


def sha256(path: Path) -> str:
  """The checksum of a file, as `sha256sum` prints it."""
  with path.open("rb") as file:
    return hashlib.file_digest(file, "sha256").hexdigest()


# The journal.


@contextlib.contextmanager
def locked(directory: Path) -> Iterator[None]:
  """Begins or continues a directory; keeps other processes out."""
  directory.mkdir(parents=True, exist_ok=True)
  with contextlib.ExitStack() as stack:
    try:
      stack.enter_context(files.locked(_journal(directory)))
    except BlockingIOError:
      raise DataError(
        "data_dir",
        f"`data_dir`: another process prepares {directory}",
        "wait for it",
      ) from None
    for path in directory.iterdir():
      if path.suffix == ".incomplete" or files.is_draft(
        path
      ):  # A killed one's.
        path.unlink()
    yield


def append(directory: Path, shard: Shard) -> None:
  """Adds a complete shard to the journal."""
  with _journal(directory).open("a", encoding="utf-8") as file:
    file.write(json.dumps(shard._asdict()) + "\n")
    file.flush()
    os.fsync(file.fileno())


def begun(directory: Path) -> dict[str, Shard]:
  """The complete shards by name; the last line of each counts."""
  return {shard.file: shard for shard in _journal_lines(directory)}


def _journal(directory: Path) -> Path:
  return directory / "shards.jsonl"


def _journal_lines(directory: Path) -> Iterator[Shard]:
  if not _journal(directory).is_file():
    return
  with _journal(directory).open(encoding="utf-8", errors="replace") as file:
    for line in file:
      try:
        shard = Shard(**json.loads(line))
      except (ValueError, TypeError, RecursionError):  # A power cut came then.
        continue
      yield shard


# The index.


def write_index(
  directory: Path,
  dataset: str,
  wnids: Sequence[str],
  shards: Sequence[Shard],
  *,
  reduced: bool = False,
) -> None:
  """Writes the index, which makes a directory complete; arguments as in `Index`."""
  summary: dict[str, Any] = {
    "format": FORMAT,
    "dataset": dataset,
    "reduced": reduced,
    "wnids": list(wnids),
    "shards": [
      {
        "file": shard.file,
        "split": shard.split,
        "records": len(shard.names),
        "size": shard.size,
        "sha256": shard.sha256,
      }
      for shard in shards
    ],
    "splits": {},
  }
  for split in SPLITS:
    rows = _rows(split, wnids, shards)
    path = directory / f"{split}.npy"
    with files.replacing(path) as file:
      np.save(file, rows)
    per_class = np.bincount(rows["label"], minlength=len(wnids))
    summary["splits"][split] = {
      "images": len(rows),
      "per_class": per_class.tolist(),
      "sha256": sha256(path),
    }
  files.write_text(directory / "index.json", json.dumps(summary, indent=1))


def _rows(split, wnids, shards):
  """All images of a split, by class and then by name."""
  labels = {wnid: label for label, wnid in enumerate(wnids)}
  found = [
    (labels[wnid], name, number, position, crc)
    for number, shard in enumerate(shards)
    if shard.split == split
    for position, (name, wnid, crc) in enumerate(
      zip(shard.names, shard.wnids, shard.crcs, strict=True)
    )
    if wnid in labels
  ]
  found.sort()
  for before, after in itertools.pairwise(found):
    if before[:2] == after[:2]:
      raise DataError(
        "source",
        f"`source` has {before[1]} twice in its {split} split",
        "remove one of them",
      )
  return np.array([(row[0], *row[2:]) for row in found], ROW)


def remove_index(directory: Path) -> None:
  """Makes a directory incomplete, before its shards change."""
  (directory / "index.json").unlink(missing_ok=True)


def is_begun(directory: Path) -> bool:
  """Whether a preparation has begun."""
  return (directory / "index.json").exists() or _journal(directory).exists()


def read_index(directory: Path) -> Index:
  """Reads the index; all files must be there and have their sizes.

  Raises:
    DataError: if the preparation was interrupted, or files have changed.
  """
  path = directory / "index.json"
  if not path.exists():
    raise _unusable(directory, "its preparation was interrupted")
  try:
    summary = json.loads(files.regular(path).read_text(encoding="utf-8"))
    if summary["format"] != FORMAT:
      raise ValueError(f"format {summary['format']}")
    rows = {
      split: _read_rows(directory, split, summary["splits"][split])
      for split in SPLITS
    }
    names = tuple(shard["file"] for shard in summary["shards"])
    sizes = [shard["size"] for shard in summary["shards"]]
    wnids = tuple(summary["wnids"])
    about = summary["dataset"], bool(summary["reduced"])
  except Exception as error:  # Damaged files raise exceptions of any kind.
    reason = printable(first_line(error))
    raise _unusable(directory, f"its index is damaged ({reason})") from error
  for file, size in zip(names, sizes, strict=True):
    shard = directory / file
    found = shard.stat().st_size if shard.is_file() else None
    if found is None:
      raise _unusable(directory, f"{file} is missing")
    if found != size:
      raise _unusable(directory, f"{file} has {found:,} of {size:,} bytes")
  return Index(directory, *about, wnids, names, rows)


def _read_rows(directory, split, summary):
  path = directory / f"{split}.npy"
  if not path.is_file() or sha256(path) != summary["sha256"]:
    raise ValueError(f"{path.name} is not what was written")
  return np.load(path, allow_pickle=False)


def _unusable(directory: Path, problem: str) -> DataError:
  return DataError(
    "data_dir", f"`data_dir`: {directory} cannot be used: {problem}", REPAIR
  )


Table = Shaped[np.ndarray, " n"]
"""Rows of `ROW`."""

# Images are read at random: reading ahead would be wasted.
_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"


@dataclasses.dataclass(frozen=True, eq=False)
class Shards:
  """The files of a prepared directory, opened when they are needed.

  Attributes:
    directory: where they are.
    files: their names, by number.
    size: side of the square views.
    decoder: one of `views.DECODERS`.
  """

  directory: Path
  files: tuple[str, ...]
  size: int
  decoder: str = "pillow"

  def views(self, rows: Table, draws: Draws | None = None) -> Pixels:
    """Evaluation views of rows of `ROW`, or training views with `draws`."""
    pixels = np.empty((len(rows), self.size, self.size, 3), np.uint8)
    for i, row in enumerate(rows):
      pixels[i] = self._view(row, draws and draws.generator(i))
    return pixels

  def _view(self, row, generator) -> UInt8[np.ndarray, "h w c"]:
    encoded = self.encoded(row)
    try:
      if generator is None:
        return views.evaluation_view(encoded, self.size, self.decoder)
      return views.training_view(encoded, self.size, generator, self.decoder)
    except Exception as error:  # Damaged files raise exceptions of any kind.
      raise self._unreadable(row, error) from error

  def encoded(self, row: Any) -> bytes:
    """The image file of a row of `ROW`; its checksum must be right."""
    try:
      (record,) = self._reader(int(row["shard"])).read([int(row["position"])])
      (encoded,) = records.features(record)["image"].bytes_list.value
    except Exception as error:  # array_record and protobuf raise anything.
      raise self._unreadable(row, error) from error
    if zlib.crc32(encoded) != row["crc"]:
      raise self._unreadable(row, "its checksum is wrong")
    return encoded

  def _reader(self, shard: int) -> Any:
    if shard not in self._readers:
      path = self.directory / self.files[shard]
      self._readers[shard] = records.reader(path, _READER_OPTIONS)
    return self._readers[shard]

  @functools.cached_property
  def _readers(self) -> dict[int, Any]:
    """Readers by number of their shard, opened when first needed."""
    return {}

  def _unreadable(self, row, reason: object) -> DataError:
    return DataError(
      "data_dir",
      f"`data_dir`: image {row['position']} of"
      f" {self.directory / self.files[row['shard']]} cannot be read"
      f" ({first_line(reason)})",
      REPAIR,
    )


@dataclasses.dataclass(frozen=True, eq=False)
class Photographs:
  """A store of images in shards, of which training sees random parts.

  Attributes:
    views: `Shards.views` or `workers.Pool.views`.
    table: rows of `ROW`.
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
    """Checksum of the image files, their order and the size of views."""
    crcs = np.append(self.table["crc"][rows], np.uint32(self.size))
    return zlib.crc32(np.ascontiguousarray(crcs).data, start)

  def read(self, rows: Rows, draws: Draws | None = None) -> Pixels:
    """The middle of the images in `rows`, or random parts with `draws`."""
    return self.views(self.table[rows], draws)
