"""Keeps decoded data sets on disk, so that the second start is immediate.

An entry is a directory of plain `.npy` files and `meta.json`. Its name is a hash of
where the data come from and how they are read: changed files replace their entry. A
damaged entry is built again. Without a usable cache directory, the data are used all
the same.
"""

from collections.abc import Callable, Iterable, Sequence
import contextlib
import dataclasses
import hashlib
import json
import os
from pathlib import Path
import shutil
import tempfile
import time
from typing import Any, TypeVar
import zlib

import numpy as np

from mnemonics_jax.data.dataset import Dataset
from mnemonics_jax.data.share import Share
from mnemonics_jax.files import make_private, regular, user_cache
from mnemonics_jax.identity import digest

_FORMAT = 2  # Part of every fingerprint: raise it when entries change.
T = TypeVar("T", bound=Any)


def cached(
  build: Callable[[], T],
  *,
  kind: type[T] = Dataset,
  identity: Sequence[str | int | float],
  files: Iterable[Path],
  cache_dir: str | os.PathLike | None = None,
  share: Share = Share(),
) -> T:
  """Returns the stored data set, or builds and stores it.

  Args:
    build: reads and verifies the data set; all processes of `share` call it.
    kind: class of the data set: a dataclass of arrays and JSON values, with a
      field `notes`.
    identity: the data set's name, then where and how it is read.
    files: the sources; a changed size or time of any of them means to rebuild.
    cache_dir: holds the entries; `~/.cache/mnemonics_jax` by default.
    share: the processes that read the data set together.
  """
  root = Path(cache_dir) if cache_dir else user_cache()
  entry = root / f"{identity[0]}-{digest(list(identity))[:16]}"
  fingerprint = _fingerprint(files)
  stored, before = None, _state(entry / "meta.json")
  # Any damage at all (missing, truncated, not JSON, wrong checksum) has the
  # same remedy.
  with contextlib.suppress(Exception):
    stored = _read(kind, entry, fingerprint)
  found = stored is not None
  if share.all_true(found) and stored is not None:
    return stored
  del stored  # Its memory is needed.
  dataset, notes = build(), []

  def keep():
    if found or _state(entry / "meta.json") != before:  # Another was faster.
      return
    try:
      _write(entry, fingerprint, dataset)
    except OSError as error:
      notes.append(
        f"The decoded images could not be kept in {root}"
        f" ({error.strerror or error}); the next start decodes them again."
      )

  share.first_process_first(keep)
  return dataclasses.replace(dataset, notes=(*dataset.notes, *notes))


def _state(file: Path) -> tuple[str, int, int]:
  try:
    stat = file.stat()
  except OSError:  # A link to nothing: becoming a file is a change.
    return str(file), -1, -1
  return str(file), stat.st_size, stat.st_mtime_ns


def _fingerprint(files: Iterable[Path]) -> str:
  """Changes with any of the files, which may be millions."""
  whole = hashlib.sha256(b"%d" % _FORMAT)
  for file in files:
    whole.update(json.dumps(_state(file)).encode())
  return whole.hexdigest()


def _read(kind: type[T], entry: Path, fingerprint: str) -> T:
  meta = json.loads(regular(entry / "meta.json").read_text())
  if meta["fingerprint"] != fingerprint:
    raise ValueError("the sources changed")
  if meta.pop("checksum") != digest([meta]):  # Mean, std, names: all of it.
    raise ValueError("damaged")
  arrays = {}
  for name, description in meta["arrays"].items():
    array = np.load(regular(entry / f"{name}.npy"), allow_pickle=False)
    if _describe(array) != description:
      raise ValueError("damaged")
    arrays[name] = array
  fields = {
    key: tuple(value) if isinstance(value, list) else value
    for key, value in meta["fields"].items()
  }
  return kind(**fields, **arrays)


def _describe(array: np.ndarray) -> list:
  # CRC-32 runs at several GB/s: checking all of CIFAR-100 takes 50 ms.
  checksum = zlib.crc32(np.ascontiguousarray(array).data)
  return [str(array.dtype), list(array.shape), checksum]


def _write(entry: Path, fingerprint: str, dataset: Any) -> None:
  root = entry.parent
  make_private(root)
  _remove_abandoned(root)
  temporary = Path(tempfile.mkdtemp(".tmp", f"{entry.name}.", root))
  try:
    fields = {
      field.name: getattr(dataset, field.name)
      for field in dataclasses.fields(dataset)
    }
    arrays = {
      name: fields.pop(name)
      for name, value in list(fields.items())
      if isinstance(value, np.ndarray)
    }
    for name, array in arrays.items():
      np.save(temporary / f"{name}.npy", array)
    meta = {
      "fingerprint": fingerprint,
      "fields": fields,
      "arrays": {name: _describe(array) for name, array in arrays.items()},
    }
    meta = json.loads(json.dumps(meta))  # As it is read again.
    meta["checksum"] = digest([meta])
    (temporary / "meta.json").write_text(json.dumps(meta))
    # A directory cannot be renamed over a full one. If another process puts
    # its entry there in between, the rename fails and that entry stays.
    shutil.rmtree(entry, ignore_errors=True)
    temporary.rename(entry)
  finally:
    shutil.rmtree(temporary, ignore_errors=True)


def _remove_abandoned(root: Path) -> None:
  """Deletes what a killed process left behind more than a day ago."""
  for path in root.glob("*.tmp"):
    with contextlib.suppress(OSError):
      if time.time() - path.stat().st_mtime > 24 * 3600:
        shutil.rmtree(path, ignore_errors=True)
