"""Small data sets on disk, in the formats of the real ones."""

from collections.abc import Iterable
import hashlib
from pathlib import Path
import struct
import tarfile

import numpy as np

PER_CLASS = {"train": 2, "test": 1}
CLASSES = [f"class_{i:02d}" for i in range(100)]
COARSE = [f"group_{i:02d}" for i in range(20)]


def cifar_arrays(seed: int = 0) -> dict[str, np.ndarray]:
  """100 classes of random images in random order."""
  rng = np.random.default_rng(seed)
  arrays = {}
  for split, count in PER_CLASS.items():
    labels = rng.permutation(np.repeat(np.arange(100, dtype=np.int32), count))
    shape = (len(labels), 32, 32, 3)
    arrays[f"{split}_images"] = rng.integers(0, 256, shape, np.uint8)
    arrays[f"{split}_labels"] = labels
  return arrays


def write_official(directory: Path, arrays: dict) -> dict[str, str]:
  """Writes `cifar-100-python` as Python 2 did; returns the MD5 sums."""
  directory.mkdir(parents=True)
  for split in PER_CLASS:
    images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    rows = images.transpose(0, 3, 1, 2).reshape(len(images), 3072)
    pickled = _dict(
      {
        b"filenames": _list(_string(b"%d.png" % i) for i in range(len(rows))),
        b"batch_label": _string(b"training batch 1 of 1"),
        b"fine_labels": _list(map(_int, labels.tolist())),
        b"coarse_labels": _list(map(_int, (labels // 5).tolist())),
        b"data": _array(rows),
      }
    )
    (directory / split).write_bytes(pickled)
  names = {b"fine_label_names": CLASSES, b"coarse_label_names": COARSE}
  (directory / "meta").write_bytes(
    _dict(
      {
        key: _list(_string(name.encode()) for name in value)
        for key, value in names.items()
      }
    )
  )
  return md5_sums(directory)


def md5_sums(directory: Path) -> dict[str, str]:
  return {
    name: hashlib.md5((directory / name).read_bytes()).hexdigest()
    for name in ("train", "test", "meta")
  }


def write_archive(path: Path, directory: Path) -> None:
  with tarfile.open(path, "w:gz", compresslevel=1) as archive:
    archive.add(directory, "cifar-100-python")


# Python 2's `cPickle.dump(value, file, 2)`, opcode by opcode; Python 3 cannot
# write its byte strings.
def _string(value: bytes) -> bytes:
  if len(value) < 256:
    return b"U" + bytes([len(value)]) + value
  return b"T" + struct.pack("<i", len(value)) + value


def _int(value: int) -> bytes:
  return b"J" + struct.pack("<i", value) if value > 255 else b"K%c" % value


def _list(items: Iterable[bytes]) -> bytes:
  return b"](" + b"".join(items) + b"e"


def _dict(items: dict[bytes, bytes]) -> bytes:
  pairs = b"".join(_string(key) + value for key, value in items.items())
  return b"\x80\x02}(" + pairs + b"u."


def _array(rows: np.ndarray) -> bytes:
  empty = (
    b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\0\x85U\x01b\x87R"
  )
  dtype = (
    b"cnumpy\ndtype\nU\x02u1K\0K\x01\x87R"
    b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\0tb"
  )
  shape = _int(rows.shape[0]) + _int(rows.shape[1]) + b"\x86"
  return (
    empty
    + b"(K\x01"
    + shape
    + dtype
    + b"\x89"
    + _string(rows.tobytes())
    + b"tb"
  )
