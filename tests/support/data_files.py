"""Small data sets on disk, in the formats of the real ones."""

from collections.abc import Iterable
import hashlib
import io
import os
from pathlib import Path
import struct
import subprocess
import sys
import tarfile
import zlib

import numpy as np
from PIL import Image
from tensorboardX.record_writer import masked_crc32c

from mnemonics_jax import data
from mnemonics_jax.data import cifar100

ARRAYS = ("train_images", "train_labels", "test_images", "test_labels")

RED, BLUE = (255, 0, 0), (0, 0, 255)
PER_CLASS = {"train": 2, "test": 1}
CLASSES = [f"class_{i:02d}" for i in range(100)]
COARSE = [f"group_{i:02d}" for i in range(20)]


def save_image(
  path: Path, color=RED, size=(20, 16), mode="RGB", **options
) -> Path:
  path.parent.mkdir(parents=True, exist_ok=True)
  Image.new("RGB", size, color).convert(mode).save(path, **options)
  return path


def write_folder(root: Path) -> Path:
  """Two classes, five training images and one validation image each."""
  for name, color in (("cat", RED), ("dog", BLUE)):
    for i in range(5):
      save_image(root / "train" / name / f"{i}.png", color)
    save_image(root / "val" / name / "0.png", color)
  return root


def write_bomb(path: Path, width: int, height: int) -> None:
  """A small PNG file that claims to be huge."""

  def chunk(kind: bytes, body: bytes) -> bytes:
    check = zlib.crc32(kind + body)
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", check)

  header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
  body = zlib.compress(bytes(1000))
  chunks = chunk(b"IHDR", header) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
  path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)


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


def framed(record: bytes) -> bytes:
  """A record as it stands in a tfrecord file."""
  checksum = lambda part: struct.pack("<I", masked_crc32c(part))
  length = struct.pack("<Q", len(record))
  return length + checksum(length) + record + checksum(record)


def write_tfds(directory: Path, arrays: dict) -> None:
  """A TFDS directory of tfrecord files, the training split in two of them."""
  from tensorflow_datasets.proto import tf_example_pb2

  directory.mkdir(parents=True)
  (directory / "label.labels.txt").write_text("\n".join(CLASSES))
  (directory / "dataset_info.json").write_text("{}")
  for split, shards in (("train", 2), ("test", 1)):
    records = []
    images, labels = arrays[f"{split}_images"], arrays[f"{split}_labels"]
    for i, (image, label) in enumerate(zip(images, labels, strict=True)):
      png = io.BytesIO()
      Image.fromarray(image).save(png, "PNG")
      example = tf_example_pb2.Example()  # pyright: ignore
      feature = example.features.feature
      feature["id"].bytes_list.value.append(b"%05d" % i)
      feature["image"].bytes_list.value.append(png.getvalue())
      feature["label"].int64_list.value.append(int(label))
      body = example.SerializeToString()
      records.append(framed(body))
    for shard in range(shards):
      name = f"cifar100-{split}.tfrecord-{shard:05d}-of-{shards:05d}"
      (directory / name).write_bytes(b"".join(records[shard::shards]))


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


def run_python(*arguments: object) -> subprocess.CompletedProcess[str]:
  """Runs a Python of its own, which finds this library."""
  return subprocess.run(
    [sys.executable, *map(str, arguments)],
    capture_output=True,
    text=True,
    env=os.environ | {"PYTHONPATH": str(Path(data.__file__).parents[2])},
  )


def load_cifar(
  data_dir: Path, cache_dir: Path, md5: dict[str, str] = cifar100.MD5
) -> data.Dataset:
  """Reads a small CIFAR-100, whose classes have `PER_CLASS` images."""
  return cifar100.load(
    data_dir, cache_dir=cache_dir, md5=md5, per_class=PER_CLASS
  )


def assert_same_arrays(dataset: data.Dataset, expected: dict) -> None:
  """Whether a data set holds `cifar_arrays`."""
  for name in ARRAYS:
    np.testing.assert_array_equal(getattr(dataset, name), expected[name])
  assert dataset.class_names == tuple(CLASSES)
