"""Reads and writes the record files of TensorFlow Datasets, without TensorFlow.

Records are parsed here, not by a TFDS builder: `features.json` names Python classes
to import, and a data directory must not decide what is imported.
"""

from collections.abc import Iterator, Mapping, Sequence
import functools
import itertools
from pathlib import Path
import re
import struct
from typing import Any

import numpy as np

from mnemonics_jax import files
from mnemonics_jax.data.dataset import DataError

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_READABLE = ("array_record", "tfrecord")
_AT_ONCE = 256


def find(data_dir: Path, name: str) -> Path | None:
  """The newest version directory of a data set in, or equal to, `data_dir`."""
  candidates = [
    path.parent
    for pattern in ("", "*.*.*/", f"{name}/*.*.*/")
    for path in data_dir.glob(f"{pattern}{name}-train.*")
    # TFDS writes into `3.0.2.incompleteXXXX` and renames it when done.
    if not pattern or _VERSION.fullmatch(path.parent.name)
  ]
  return max(candidates, key=_version, default=None)


def _version(directory: Path) -> tuple[int, ...]:
  parts = directory.name.split(".")
  return tuple(int(part) for part in parts if part.isdecimal())


def shards(directory: Path, name: str, split: str) -> list[Path]:
  """All files of a split, in order."""
  for file_format in _READABLE:
    if found := sorted(directory.glob(f"{name}-{split}.{file_format}-*")):
      count = found[0].name.rpartition("-of-")[2]
      if count.isdecimal() and len(found) > int(count):
        raise DataError(
          "data_dir",
          f"`data_dir`: {directory} has {len(found)} files of its {split} split,"
          f" which should be {int(count)}; some are extra, of another copy",
          f"remove those ({found[0].name} ... {found[-1].name})",
        )
      if count.isdecimal() and len(found) < int(count):
        raise DataError(
          "data_dir",
          f"`data_dir`: {directory} has {len(found)} of {int(count)} files of"
          f" its {split} split",
          "copy the missing ones, too",
        )
      return found
  raise DataError(
    "data_dir",
    f"`data_dir`: {directory} has no {split} split in a format that can be read"
    f" here ({' or '.join(_READABLE)})",
    "make it again, elsewhere, from the official archive"
    " (python -m mnemonics_jax.data.prepare)",
  )


def read(path: Path) -> Iterator[bytes]:
  """Yields the records of a file; holds a few of them in memory."""
  if ".tfrecord" in files.regular(path).name:
    yield from _tfrecords(path)
    return
  file = reader(path)
  try:
    total = file.num_records()
    for start in range(0, total, _AT_ONCE):
      yield from file.read(start, min(start + _AT_ONCE, total))
  finally:
    file.close()


def reader(path: Path, options: str = "") -> Any:
  """Opens an array_record file for reading at random."""
  from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

  return array_record_module.ArrayRecordReader(
    str(files.regular(path)), options
  )


def writer(path: Path, options: str = "group_size:1") -> Any:
  """Begins an array_record file, which is complete when it is closed."""
  from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

  return array_record_module.ArrayRecordWriter(str(path), options)


def features(record: bytes) -> Mapping[str, Any]:
  """The fields of a record by name, each with its list of values."""
  from tensorflow_datasets.proto import tf_example_pb2

  example = tf_example_pb2.Example.FromString(record)  # pyright: ignore[reportAttributeAccessIssue]
  return example.features.feature


def encode(**fields: bytes | int) -> bytes:
  """A record of these fields, as `features` reads it."""
  from tensorflow_datasets.proto import tf_example_pb2

  example = tf_example_pb2.Example()  # pyright: ignore[reportAttributeAccessIssue]
  for name, value in fields.items():
    feature = example.features.feature[name]
    kind = (
      feature.bytes_list if isinstance(value, bytes) else feature.int64_list
    )
    kind.value.append(value)
  return example.SerializeToString(deterministic=True)


def _tfrecords(path: Path) -> Iterator[bytes]:
  """Each record is length (8 bytes), checksum (4), data, checksum (4)."""
  with path.open("rb") as file:
    while True:
      read = list(itertools.islice(_framed(file, path), _AT_ONCE))
      records, stored = zip(*read, strict=True) if read else ((), ())
      found = masked(crc32c_many(records))
      if wrong := int(np.sum(np.array(stored, int) != found)):
        raise ValueError(f"{path.name}: checksums of {wrong} records differ")
      if not records:
        return
      yield from records


def _framed(file, path):
  """Records as they follow, and what is stored of their checksums."""
  while header := file.read(12):
    if len(header) < 12:
      raise ValueError(f"{path.name} is truncated")
    length, checksum = struct.unpack("<QI", header)
    if masked(crc32c(header[:8])) != checksum:
      raise ValueError(f"{path.name}: the checksum of a length differs")
    record, checksum = file.read(length), file.read(4)
    if len(record) != length or len(checksum) != 4:
      raise ValueError(f"{path.name} is truncated")
    yield record, *struct.unpack("<I", checksum)


# CRC-32C, the checksum in tfrecord files. Byte by byte, Python would take minutes for
# CIFAR-100. CRCs are linear, so those of blocks are computed side by side and joined.

_POLYNOMIAL = np.uint32(0x82F63B78)  # Castagnoli's, reversed.
_BLOCK = 512
_LEAST = 4


def masked(crc: int | np.ndarray) -> int | np.ndarray:
  """A checksum as tfrecord files store it."""
  return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def crc32c(data: bytes) -> int:
  """The checksum of a few bytes."""
  table, crc = _table().tolist(), 0xFFFFFFFF
  for byte in data:
    crc = table[(crc ^ byte) & 255] ^ (crc >> 8)
  return crc ^ 0xFFFFFFFF


def crc32c_many(records: Sequence[bytes]) -> np.ndarray:
  """The checksums of many records, as int64."""
  counts = np.array([-(-len(record) // _BLOCK) for record in records], int)
  firsts = np.cumsum(counts) - counts
  blocks = np.zeros((counts.sum(), _BLOCK), np.uint8)
  ends = (firsts + counts) * _BLOCK
  for record, end in zip(records, ends.tolist(), strict=True):
    # Zeros in front of a record change nothing, unlike those behind it.
    start = end - len(record)
    blocks.reshape(-1)[start:end] = np.frombuffer(record, np.uint8)
    blocks.reshape(-1)[start : min(start + _LEAST, end)] ^= 255
  of_blocks = _advance(np.zeros(len(blocks), np.uint32), blocks)
  sums = np.zeros(len(records), np.uint32)
  for number in range(counts.max(initial=0)):
    rows = np.flatnonzero(counts > number)
    sums[rows] = _over_block(sums[rows]) ^ of_blocks[firsts[rows] + number]
  sums = (~sums).astype(np.int64)
  for row, record in enumerate(records):
    if len(record) < _LEAST:  # Its end was not reached by what begins a sum.
      sums[row] = crc32c(record)
  return sums


def _advance(crc, blocks):
  """Checksums, without their beginning and end, after the bytes of blocks."""
  table = _table()
  for column in np.ascontiguousarray(blocks.T):
    crc = table[(crc ^ column) & 255] ^ (crc >> 8)
  return crc


def _over_block(crc):
  """Checksums after a block of zeros, byte by byte of what they were."""
  tables = _zeros_tables()
  return functools.reduce(
    np.bitwise_xor, (tables[i][(crc >> 8 * i) & 255] for i in range(4))
  )


@functools.cache
def _table():
  table = np.arange(256, dtype=np.uint32)
  for _ in range(8):
    table = (table >> 1) ^ np.where(table & 1, _POLYNOMIAL, np.uint32(0))
  return table


@functools.cache
def _zeros_tables():
  values = np.arange(256, dtype=np.uint32) << 8 * np.arange(4)[:, None]
  values = values.astype(np.uint32)
  zeros = np.zeros((values.size, _BLOCK), np.uint8)
  return _advance(values.reshape(-1), zeros).reshape(values.shape)
