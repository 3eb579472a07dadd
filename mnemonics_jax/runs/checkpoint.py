"""Trees of arrays on disk: written at once or not at all, checked when read.

A checkpoint is a directory: `arrays/` as Orbax writes it, `info.json` for what
is not an array, and `manifest.json` with the checksum of every file. It is
complete before it gets its name, so whatever interrupts a save leaves the
checkpoints that were there. Nothing that is read is ever executed.
"""

import hashlib
import json
import os
from pathlib import Path
import shutil
from typing import Any
import warnings

from flax import traverse_util
import jax
import numpy as np
import orbax.checkpoint as ocp

from mnemonics_jax.runs.layout import ARRAYS, INFO, MANIFEST
from mnemonics_jax.types import PyTree

_COPY = "arrays.npz"


class Damaged(Exception):
  """A checkpoint is not what was written.

  Attributes:
    path: where it is.
  """

  def __init__(self, path: Path, why: object):
    super().__init__(f"{path} is damaged ({why})")
    self.path = path


def save(path: Path, tree: PyTree, info: dict[str, Any] | None = None) -> int:
  """Writes `tree` to the new directory `path` and returns its size in bytes.

  Args:
    path: where to; must not exist.
    tree: nested dicts of arrays.
    info: JSON values that belong to them.

  Raises:
    OSError: the disk is full or cannot be written.
  """
  path = Path(path).absolute()
  partial = path.with_name(f"{path.name}.partial-{os.getpid()}")
  shutil.rmtree(partial, ignore_errors=True)
  partial.mkdir(parents=True)
  try:
    _write_arrays(partial / ARRAYS, tree)
    (partial / INFO).write_text(json.dumps(info or {}))
    files = _checksums(partial)
    manifest = json.dumps({"files": files}, indent=1)
    (partial / MANIFEST).write_text(manifest + "\n")
    for part in (*_files(partial), partial):
      _sync(part)
    os.rename(partial, path)
    _sync(path.parent)
  except BaseException:
    shutil.rmtree(partial, ignore_errors=True)
    raise
  return sum(file.stat().st_size for file in _files(path))


def restore(path: Path) -> tuple[PyTree, dict[str, Any]]:
  """The arrays and the info of a checkpoint.

  Raises:
    Damaged: a file is missing, added or different from what was written.
    OSError: it cannot be read at the moment, or not by this version of Orbax.
  """
  path = Path(path).absolute()
  try:
    expected = json.loads((path / MANIFEST).read_bytes())["files"]
    found = _checksums(path)
    found.pop(MANIFEST, None)
    wrong = sorted(
      name
      for name in expected.keys() | found.keys()
      if expected.get(name) != found.get(name)
    )
    if wrong:
      raise Damaged(path, f"{', '.join(wrong[:3])} changed")
    info = json.loads((path / INFO).read_bytes())
  except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
    raise Damaged(path, error) from error
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise Damaged(path, error) from error
  try:
    return _read_arrays(path / ARRAYS), info
  except Exception as error:
    raise OSError(f"Orbax could not read it: {error}") from error


def _write_arrays(path, tree):
  tree = jax.tree.map(np.asarray, tree)
  if jax.process_index():
    # Orbax writes in the first process only. What others write ends with them.
    path.mkdir()
    flat: dict[str, Any] = dict(traverse_util.flatten_dict(tree, sep="/"))
    np.savez(path / _COPY, **flat)
    return
  try:
    with _checkpointer() as checkpointer:
      checkpointer.save(path, args=ocp.args.PyTreeSave(tree))
  except OSError:
    raise
  except Exception as error:
    # Its kernels have their own words for a full disk.
    raise OSError(f"Orbax could not write {path.name}: {error}") from error


def _checkpointer():
  """For this process alone: each has a directory of its own to write to."""
  me = jax.process_index()
  alone = ocp.options.MultiprocessingOptions(
    primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"own{me}"
  )
  handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
  return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _read_arrays(path):
  if (path / _COPY).exists():
    with np.load(path / _COPY, allow_pickle=False) as arrays:
      return traverse_util.unflatten_dict(dict(arrays), sep="/")
  with _checkpointer() as checkpointer:
    metadata = checkpointer.metadata(path).item_metadata
    as_numpy = jax.tree.map(
      lambda _: ocp.RestoreArgs(restore_type=np.ndarray), metadata.tree
    )
    args = ocp.args.PyTreeRestore(restore_args=as_numpy)
    with warnings.catch_warnings():
      # That no device is named is what host arrays are about.
      warnings.simplefilter("ignore")
      return checkpointer.restore(path, args=args)


def _files(path):
  return [file for file in sorted(path.rglob("*")) if file.is_file()]


def _checksums(path):
  return {
    str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest()
    for file in _files(path)
  }


def _sync(path):
  """Asks the disk to hold a file, or the names in a directory."""
  if path.is_dir() and os.name == "nt":
    return
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  finally:
    os.close(descriptor)
