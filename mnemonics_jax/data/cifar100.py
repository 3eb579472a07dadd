"""Reads CIFAR-100 from a TFDS directory, the official files or their archive.

The official files are pickles, and a pickle is a program: their MD5 sums
are checked first, then an unpickler reads them that knows three names, each a
stand-in that only holds data. Archives are read in memory and never unpacked.
"""

from collections.abc import Mapping
import contextlib
import hashlib
import importlib.util
import io
import os
from pathlib import Path
import pickle
import subprocess
import sys
import tarfile
import tempfile
import time
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from mnemonics_jax import files
from mnemonics_jax.data import records
from mnemonics_jax.data.cache import cached
from mnemonics_jax.data.dataset import (
  DataError,
  Dataset,
  data_directory,
  first_line,
  printable,
  verify,
)
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import DataReport, Report, ignore

URL = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
FOLDER = "cifar-100-python"
MD5 = {
  "train": "16019d7e3df5f24257cddd939b257f8d",
  "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
  "meta": "7973b15100ade9c7d40fb424638fde48",
}
PER_CLASS = {"train": 500, "test": 100}
_MEAN = (0.5071, 0.4866, 0.4409)
_STD = (0.2009, 0.1984, 0.2023)
_MAX_BYTES = 1 << 28  # `train`, the largest official file, has 155 MB.


class Split(NamedTuple):
  """Training or test images; only official files give coarse labels here."""

  images: np.ndarray
  labels: np.ndarray
  coarse_labels: np.ndarray | tuple[int, ...] = ()


class Cifar100(NamedTuple):
  """Images in the order of the official files, and the names of classes."""

  train: Split
  test: Split
  class_names: tuple[str, ...]
  coarse_names: tuple[str, ...] = ()


def load(
  data_dir: str | os.PathLike | None = None,
  *,
  download: bool = False,
  cache_dir: str | os.PathLike | None = None,
  report: Report = ignore,
  share: Share = Share(),
  md5: Mapping[str, str] = MD5,
  per_class: Mapping[str, int] = PER_CLASS,
) -> Dataset:
  """Finds CIFAR-100 in a directory and reads it; the second time from the cache.

  Args:
    data_dir: a TFDS directory, the official archive or its unpacked directory,
      or a directory that has one of them. By default `$MNEMONICS_DATA_DIR`,
      then `~/tensorflow_datasets`.
    download: whether to fetch it from the network if it is missing.
    cache_dir: keeps decoded arrays.
    report: is called with the progress of decoding.
    share: the records that this process decodes.
    md5: sums that the official files must have.
    per_class: how many images of each class each split must have.
  """
  root = data_directory(data_dir)
  if download:
    share.first_process_first(lambda: _fetch_missing(root, report))
  prepared = records.find(root, "cifar100")
  path = prepared or find_official(root)
  if path is None:
    raise _not_found(root)
  form = b"tfds" if prepared else b"official"
  share.check_equal([form], f"`data_dir={root}` has another form of CIFAR-100")

  def build() -> Dataset:
    if prepared:
      found = read_tfds(path, report, share)
    else:
      found = read_official(path, md5=md5)
    dataset = verify(
      Dataset(
        "cifar100",
        found.train.images,
        found.train.labels,
        found.test.images,
        found.test.labels,
        class_names=found.class_names,
        mean=_MEAN,
        std=_STD,
      ),
      f"`data_dir`: {path}",
    )
    _check_counts(dataset, path, per_class)
    return dataset

  return cached(
    build,
    identity=("cifar100", str(path.resolve())),
    files=_tfds_files(path) if prepared else _official_files(path),
    cache_dir=cache_dir,
    share=share,
  )


def _check_counts(
  dataset: Dataset, path: Path, per_class: Mapping[str, int]
) -> None:
  for split, expected in per_class.items():
    counts = np.bincount(getattr(dataset, f"{split}_labels"))
    if len(counts) != 100 or np.any(counts != expected):
      raise DataError(
        "data_dir",
        f"`data_dir`: {path} is not all of CIFAR-100: it has {len(counts)}"
        f" classes with {counts.min()} to {counts.max()} {split} images each,"
        f" expected 100 with {expected}",
        "make it again from the official archive"
        " (python -m mnemonics_jax.data.prepare)",
      )


def _not_found(root: Path) -> DataError:
  state = "does not exist"
  if root.exists():
    readable = os.access(root, os.R_OK | os.X_OK)
    state = "has no CIFAR-100" if readable else "cannot be read"
  return DataError(
    "data_dir",
    f"`data_dir={root}` {state}",
    f"""it should hold one of
  cifar100/VERSION/cifar100-train.array_record-*   (TensorFlow Datasets)
  cifar-100-python/{{train,test,meta}}               (official, unpacked)
  cifar-100-python.tar.gz                          (official archive)
Three ways to provide it:
  1. `data_dir=DIR` (or MNEMONICS_DATA_DIR) names a directory that has one of them;
  2. put {URL} into {root}
     (python -m mnemonics_jax.data.prepare turns it into the first form);
  3. `download` fetches it through TensorFlow Datasets (pip install -e '.[tf]')""",
  )


# The official files.


def find_official(data_dir: Path) -> Path | None:
  """The unpacked directory or the archive in, or equal to, `data_dir`."""
  if data_dir.is_file() and data_dir.name.endswith((".tar.gz", ".tgz", ".tar")):
    return data_dir
  for directory in (data_dir, data_dir / FOLDER):
    if all((directory / name).is_file() for name in ("train", "test")):
      return directory
  archive = data_dir / f"{FOLDER}.tar.gz"
  return archive if archive.is_file() else None


def _official_files(source: Path) -> list[Path]:
  return [source / name for name in MD5] if source.is_dir() else [source]


def read_official(
  source: Path, *, md5: Mapping[str, str] = MD5, field: str = "data_dir"
) -> Cifar100:
  """Reads the directory or archive; every file must have its known MD5 sum.

  Args:
    source: a path that `find_official` has returned.
    md5: the sums.
    field: the setting that names `source`, for messages.
  """
  named = f"`{field}`: {source}"
  if source.is_dir():
    contents = _from_directory(source)
  else:
    contents = _from_tar(source, field)
  for name, expected in md5.items():
    if name not in contents:
      raise DataError(
        field,
        f"{named} has no file {name}",
        f"put a complete copy of {URL} there",
      )
    found = hashlib.md5(contents[name], usedforsecurity=False).hexdigest()
    if found != expected:
      raise DataError(
        field,
        f"{named}/{name} is not the official file (its MD5 sum is {found},"
        f" published is {expected}), and nothing in it was used",
        f"put a new copy of {URL} there",
      )
  try:
    fields = {name: unpickle(contents[name]) for name in MD5}
    return Cifar100(
      train=_split(fields["train"]),
      test=_split(fields["test"]),
      class_names=_names(fields["meta"][b"fine_label_names"]),
      coarse_names=_names(fields["meta"][b"coarse_label_names"]),
    )
  except Exception as error:  # A wrong pickle can fail in any way.
    raise DataError(
      field,
      f"{named} does not hold CIFAR-100 ({error})",
      f"put a new copy of {URL} there",
    ) from error


def _from_directory(source: Path) -> dict[str, bytes]:
  contents = {}
  for name in MD5:
    path = source / name
    if path.is_file() and path.stat().st_size <= _MAX_BYTES:
      contents[name] = path.read_bytes()
  return contents


def _from_tar(source: Path, field: str) -> dict[str, bytes]:
  contents = {}
  try:
    with tarfile.open(source) as archive:
      for member in archive:
        folder, _, name = member.name.removeprefix("./").partition("/")
        if folder != FOLDER or name not in MD5 or not member.isfile():
          continue
        file = archive.extractfile(member)
        if file and member.size <= _MAX_BYTES:
          contents.setdefault(name, file.read())
        if len(contents) == len(MD5):
          break
  except Exception as error:  # Besides its own, tarfile lets zlib's escape.
    raise DataError(
      field,
      f"`{field}`: {source} is not a complete archive ({error})",
      f"put a new copy of {URL} there",
    ) from error
  return contents


class _Dtype:
  """Stands in for `numpy.dtype`."""

  def __init__(self, code: Any = None, *_: Any):
    self.code = code

  def __setstate__(self, state: Any):
    del state  # Byte order and alignment: bytes have neither.


class _Array:
  """Stands in for `numpy.ndarray`: holds the pieces, runs nothing."""

  def __setstate__(self, state: Any):
    _, shape, dtype, fortran, data = state
    if not isinstance(dtype, _Dtype) or dtype.code != b"u1" or fortran:
      raise pickle.UnpicklingError("an array is not plain uint8")
    self.value = np.frombuffer(data, np.uint8).reshape(shape)


_ALLOWED = {
  ("numpy.core.multiarray", "_reconstruct"): lambda *_: _Array(),
  ("numpy", "ndarray"): _Array,
  ("numpy", "dtype"): _Dtype,
}


class _Unpickler(pickle.Unpickler):
  def find_class(self, module_name: str, global_name: str, /) -> Any:
    try:
      return _ALLOWED[module_name, global_name]
    except KeyError:
      raise pickle.UnpicklingError(
        f"it asks for {module_name}.{global_name}"
      ) from None


def unpickle(data: bytes) -> Any:
  """Reads a Python 2 pickle of plain values and uint8 arrays, nothing else."""
  return _Unpickler(io.BytesIO(data), encoding="bytes").load()


def _split(fields: dict[bytes, Any]) -> Split:
  pixels = fields[b"data"].value.reshape(-1, 3, 32, 32)
  return Split(
    images=np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)),
    labels=np.array(fields[b"fine_labels"], np.int32),
    coarse_labels=np.array(fields[b"coarse_labels"], np.int32),
  )


def _names(names: list[bytes]) -> tuple[str, ...]:
  return tuple(name.decode("ascii") for name in names)


# A directory of TensorFlow Datasets.


def _tfds_files(path: Path) -> list[Path]:
  splits = [records.shards(path, "cifar100", name) for name in PER_CLASS]
  return [*splits[0], *splits[1], path / "label.labels.txt"]


def read_tfds(
  path: Path, report: Report = ignore, share: Share = Share()
) -> Cifar100:
  """Reads the directory of a version, as `records.find` finds it.

  Every process reads all records and decodes the images of its share.
  """
  try:
    names = files.regular(path / "label.labels.txt").read_text().split()
    stored = [
      (split, records.features(record))
      for split in PER_CLASS
      for file in records.shards(path, "cifar100", split)
      for record in records.read(file)
    ]
    ids = [feature["id"].bytes_list.value[0] for _, feature in stored]
    labels = np.array(
      [label for _, f in stored for label in f["label"].int64_list.value],
      np.int32,
    )
    images = np.zeros((len(stored), 32, 32, 3), np.uint8)
    assigned = share.rows(len(stored))
    # Threads do not pay: most of the 0.12 ms for an image holds the lock.
    for done, row in enumerate(assigned, 1):
      images[row] = _decode(stored[row][1]["image"].bytes_list.value[0])
      if done % 1000 == 0 or done == len(assigned):
        report(DataReport(done, len(assigned)))
  except DataError:
    raise
  except Exception as error:  # array_record, protobuf and PIL raise anything.
    raise DataError(
      "data_dir",
      f"`data_dir`: the records in {path} are damaged ({first_line(error)})",
      "delete that directory and make it again"
      " (python -m mnemonics_jax.data.prepare)",
    ) from error
  parts = [*ids, labels.tobytes()]
  share.check_equal(parts, f"`data_dir`: {path} has other records")
  share.all_gather_rows(images)
  splits = {}
  for name in PER_CLASS:
    rows = [row for row, (split, _) in enumerate(stored) if split == name]
    rows.sort(key=ids.__getitem__)
    splits[name] = Split(images[rows], labels[rows])
  return Cifar100(splits["train"], splits["test"], tuple(map(printable, names)))


def _decode(encoded: bytes) -> np.ndarray:
  with Image.open(io.BytesIO(encoded), formats=("PNG",)) as image:
    if image.size != (32, 32) or image.mode != "RGB":
      raise ValueError(f"an image is {image.mode} of size {image.size}")
    return np.asarray(image)


# Downloading, in a process of its own: TensorFlow would reserve the accelerator's
# memory if it were imported here, and a process can be ended when the network
# stalls.

_ARCHIVE_BYTES = 168_513_733
_STALLED_SECONDS = 180
_FETCH = """
import sys, urllib.request
url, data_dir = sys.argv[1:]
try:
  urllib.request.urlopen(url, timeout=10).close()
except OSError as error:
  sys.exit(f"{url} cannot be reached from this machine: {error}")
import tensorflow_datasets as tfds
tfds.builder(
    "cifar100", data_dir=data_dir, file_format="array_record"
).download_and_prepare()
"""


def _fetch_missing(data_dir: Path, report: Report) -> None:
  """Lets TensorFlow Datasets make `data_dir/cifar100` of array_record files."""
  if records.find(data_dir, "cifar100") or find_official(data_dir):
    return
  if importlib.util.find_spec("tensorflow") is None:
    raise DataError(
      "download",
      "`download` needs TensorFlow",
      "pip install -e '.[tf]'. Without it, put"
      f" {URL} into {data_dir} and leave out `download`",
    )
  with tempfile.TemporaryFile() as log:
    process = subprocess.Popen(
      [sys.executable, "-c", _FETCH, URL, str(data_dir)],
      stdout=log,
      stderr=log,
    )
    try:
      _watch(process, data_dir, report)
    finally:
      process.kill()
      process.wait()
    log.seek(0)
    lines = log.read().decode(errors="replace").strip().splitlines()
  if process.returncode:
    reason = lines[-1] if lines else "it stalled"
    raise DataError(
      "download",
      f"`download`: TensorFlow Datasets could not prepare {data_dir} ({reason})",
      f"check the network or proxy, or put {URL} there by other means and leave"
      " out `download`",
    )


def _watch(process: subprocess.Popen, data_dir: Path, report: Report) -> None:
  """Returns when the process has ended or has written nothing for long."""
  size, since = -1, time.monotonic()
  while process.poll() is None and time.monotonic() - since < _STALLED_SECONDS:
    written = 0
    for path in data_dir.glob("**/*"):
      with contextlib.suppress(OSError):
        written += path.stat().st_size
    if written != size:
      size, since = written, time.monotonic()
      report(DataReport(min(size, _ARCHIVE_BYTES), _ARCHIVE_BYTES))
    time.sleep(0.5)
