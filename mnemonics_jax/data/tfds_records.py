"""What TensorFlow Datasets stores, CIFAR-100 above all, read without TensorFlow.

The records are read as bytes and parsed here rather than through a TFDS
builder: `features.json` names Python classes to import, and a data directory
should not decide what is imported.
"""

from collections.abc import Iterator, Mapping, Sequence
import io
import itertools
from pathlib import Path
import re
import struct
from typing import Any

import numpy as np

from mnemonics_jax.data import crc32c
from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import DataReport, Report, ignore

_VERSION = re.compile(r"\d+\.\d+\.\d+")
_READABLE = ("array_record", "tfrecord")
_AT_ONCE = 256


def find(data_dir: Path, name: str = "cifar100") -> Path | None:
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


def files(directory: Path) -> list[Path]:
  """The files of a version directory that `read` reads."""
  splits = [
    path for split in ("train", "test") for path in shards(directory, split)
  ]
  return [*splits, directory / "label.labels.txt"]


def shards(directory: Path, split: str, name: str = "cifar100") -> list[Path]:
  """The files of a split of a data set, all of them, in order."""
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


def read(
  directory: Path, report: Report = ignore, share: Share = Share()
) -> tuple[dict[str, np.ndarray], tuple[str, ...]]:
  """Arrays of both splits in the order of their ids, and the class names."""
  splits, names = _read_share(directory, report, share)
  arrays = {}
  for split, (images, labels, ids) in splits.items():
    if not share.all_equal([*ids, labels.tobytes()]):
      raise DataError(
        "data_dir",
        f"`data_dir`: {directory} has other records on another machine",
        "all must see the same",
      )
    share.all_gather_rows(images)
    order = sorted(range(len(ids)), key=ids.__getitem__)
    arrays[f"{split}_images"] = images[order]
    arrays[f"{split}_labels"] = labels[order]
  return arrays, names


def _read_share(directory, report, share):
  """For each split images, labels and ids; and the class names.

  All records are read, but only images of the share are decoded.
  """
  try:
    names = (directory / "label.labels.txt").read_text().split()
    stored = {
      split: [r for path in shards(directory, split) for r in records(path)]
      for split in ("train", "test")
    }
    total = sum(map(len, stored.values()))
    splits, done = {}, 0
    for split, serialized in stored.items():
      splits[split] = _decode(serialized, done, total, report, share)
      done += len(serialized)
  except DataError:
    raise
  except Exception as error:  # array_record, protobuf and PIL raise anything.
    reason = str(error).splitlines()[0] if str(error) else repr(error)
    raise DataError(
      "data_dir",
      f"`data_dir`: the records in {directory} are damaged ({reason})",
      "delete that directory and make it again"
      " (python -m mnemonics_jax.data.prepare)",
    ) from error
  return splits, tuple(names)


def records(path: Path) -> Iterator[bytes]:
  """The records of a file, in its order, some at a time in memory."""
  if ".tfrecord" in path.name:
    yield from _tfrecords(path)
    return
  from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

  reader = array_record_module.ArrayRecordReader(str(path))
  try:
    total = reader.num_records()
    for start in range(0, total, _AT_ONCE):
      yield from reader.read(start, min(start + _AT_ONCE, total))
  finally:
    reader.close()


def features(record: bytes) -> Mapping[str, Any]:
  """The fields of a record by name, each with its list of values."""
  from tensorflow_datasets.proto import tf_example_pb2

  example = tf_example_pb2.Example.FromString(record)  # pyright: ignore[reportAttributeAccessIssue]
  return example.features.feature


def _tfrecords(path: Path) -> Iterator[bytes]:
  """Each record is length (8 bytes), checksum (4), data, checksum (4)."""
  with path.open("rb") as file:
    while True:
      read = list(itertools.islice(_framed(file, path), _AT_ONCE))
      records, stored = zip(*read, strict=True) if read else ((), ())
      found = crc32c.masked(crc32c.crc32c_many(records))
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
    if crc32c.masked(crc32c.crc32c(header[:8])) != checksum:
      raise ValueError(f"{path.name}: the checksum of a length differs")
    record, checksum = file.read(length), file.read(4)
    if len(record) != length or len(checksum) != 4:
      raise ValueError(f"{path.name} is truncated")
    yield record, *struct.unpack("<I", checksum)


def _decode(
  serialized: Sequence[bytes],
  done: int,
  total: int,
  report: Report,
  share: Share,
) -> tuple[np.ndarray, np.ndarray, list[bytes]]:
  from PIL import Image

  images = np.zeros((len(serialized), 32, 32, 3), np.uint8)
  labels = np.empty(len(serialized), np.int32)
  assigned, ids = share.rows(len(serialized)), []
  for i, record in enumerate(serialized):
    feature = features(record)
    if i in assigned:
      encoded = feature["image"].bytes_list.value[0]
      # Threads do not pay: most of the 0.12 ms per image holds the lock.
      with Image.open(io.BytesIO(encoded), formats=("PNG",)) as image:
        if image.size != (32, 32) or image.mode != "RGB":
          raise ValueError(f"an image is {image.mode} of size {image.size}")
        images[i] = np.asarray(image)
    (labels[i],) = feature["label"].int64_list.value
    ids.append(feature["id"].bytes_list.value[0])
    if (done + i + 1) % 1000 == 0 or done + i + 1 == total:
      report(DataReport(done + i + 1, total))
  return images, labels, ids
