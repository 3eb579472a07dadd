"""The official `cifar-100-python` files, read without trusting them.

A pickle is a program. These are checked against the published MD5 sums first;
then an unpickler reads them that knows three names, each a stand-in that only
holds data. Archives are read in memory and never unpacked.
"""

from collections.abc import Mapping
import hashlib
import io
from pathlib import Path
import pickle
import tarfile
from typing import Any, NamedTuple

import numpy as np

from mnemonics_jax.data.dataset import DataError

URL = "https://www.cs.toronto.edu/~kriz/cifar-100-python.tar.gz"
FOLDER = "cifar-100-python"
MD5 = {
  "train": "16019d7e3df5f24257cddd939b257f8d",
  "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
  "meta": "7973b15100ade9c7d40fb424638fde48",
}
_MAX_BYTES = 1 << 28  # `train`, the largest, is 155 MB.


class Split(NamedTuple):
  """Training or test images with their two kinds of labels."""

  images: np.ndarray
  labels: np.ndarray
  coarse_labels: np.ndarray


class Cifar100(NamedTuple):
  """All that the official files hold."""

  train: Split
  test: Split
  class_names: tuple[str, ...]
  coarse_names: tuple[str, ...]


def find(data_dir: Path) -> Path | None:
  """The unpacked directory or the archive in, or equal to, `data_dir`."""
  if data_dir.is_file() and data_dir.name.endswith((".tar.gz", ".tgz", ".tar")):
    return data_dir
  for directory in (data_dir, data_dir / FOLDER):
    if all((directory / name).is_file() for name in ("train", "test")):
      return directory
  archive = data_dir / f"{FOLDER}.tar.gz"
  return archive if archive.is_file() else None


def files(source: Path) -> list[Path]:
  """The files that `read` reads."""
  return [source / name for name in MD5] if source.is_dir() else [source]


def read(
  source: Path, *, md5: Mapping[str, str] = MD5, field: str = "data_dir"
) -> Cifar100:
  """Reads the directory or archive; every file must have its known MD5 sum.

  Args:
    source: what `find` has found.
    md5: the sums.
    field: the setting that has named `source`, for messages.
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


def _reconstruct(*_: Any) -> _Array:
  return _Array()


_ALLOWED = {
  ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
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
