"""Trees of arrays on disk: written at once or not at all, checked when read.

A checkpoint is a directory: `arrays/` as Orbax writes it, `large/` with a file for
each array that is too large to be read before it is needed, `info.json` for what
is not an array, and `manifest.json` with the checksum of every file and with the
place that the checkpoint was made for. It is complete, and was read back, before
it gets its name: whatever interrupts a save leaves the checkpoints that were
there. Nothing that is read is ever executed.
"""

from collections.abc import Iterator, Mapping
import contextlib
import errno
import hashlib
import json
import os
from pathlib import Path
import re
import shutil
import tempfile
from typing import Any
import warnings

from flax import traverse_util
import jax
import numpy as np
import orbax.checkpoint as ocp

from mnemonics_jax.errors import DISK_TROUBLE
from mnemonics_jax.runs import drafts, quiet
from mnemonics_jax.runs.layout import ARRAYS, INFO, LARGE, MANIFEST
from mnemonics_jax.types import PyTree

_COPY = "arrays.npz"
# Bytes from which an array has a file of its own, which is mapped into memory.
_LARGE = 2**28
# Values of larger trees are not read back, which would take their size again.
_READ_BACK_BYTES = 2**28


class Damaged(Exception):
  """A checkpoint is not what was written.

  Attributes:
    path: where it is.
  """

  def __init__(self, path: Path, why: object):
    super().__init__(f"{path} is damaged ({why})")
    self.path = path


class Misplaced(Damaged):
  """A checkpoint is whole, but was written for another place."""


def save(
  path: Path,
  tree: PyTree,
  info: dict[str, Any] | None = None,
  place: Mapping[str, Any] | None = None,
  *,
  replace: bool = False,
) -> int:
  """Writes `tree` to the directory `path` and returns its size in bytes.

  Args:
    path: where to.
    tree: nested dicts of arrays.
    info: JSON values that belong to them.
    place: what they are a checkpoint of, such as a run and a phase of it.
    replace: whether a directory may be there, which is then replaced.

  Raises:
    OSError: the disk is full or cannot be written, or what was written could not
      be read again.
  """
  path = Path(path).absolute()
  tree = jax.tree.map(np.asarray, tree)
  with drafts.drafting(path, replace=replace) as draft:
    _check_room(draft, tree)
    apart, others = _by_size(tree)
    _write_arrays(draft / ARRAYS, others)
    for name, array in apart.items():
      (draft / LARGE).mkdir(exist_ok=True)
      np.save(draft / LARGE / f"{name}.npy", array, allow_pickle=False)
    (draft / INFO).write_text(json.dumps(info or {}))
    manifest = {"place": dict(place or {}), "files": _checksums(draft)}
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    _read_back(draft, tree)
  return sum(file.stat().st_size for file in _files(path))


def restore(
  path: Path, place: Mapping[str, Any] | None = None
) -> tuple[PyTree, dict[str, Any]]:
  """The arrays and the info of a checkpoint.

  Args:
    path: where it is.
    place: what it should be a checkpoint of, as far as the caller knows.

  Raises:
    Damaged: a file is missing, added or different from what was written, or all
      of it was written for another place.
    OSError: it cannot be read at the moment, or not by this version of Orbax.
  """
  path = Path(path).absolute()
  info = _checked_info(path, place, _checksums(path))
  try:
    with quiet.other_threads():
      arrays = _read_arrays(path / ARRAYS)
  except Exception as error:
    known = _as_disk_error(error)
    raise known or OSError(f"Orbax could not read it: {error}") from error
  return _with_large(arrays, path), info


def restore_info(
  path: Path, place: Mapping[str, Any] | None = None
) -> dict[str, Any]:
  """The info alone, in no time; arguments and errors are those of `restore`."""
  path = Path(path).absolute()
  return _checked_info(path, place)


def _checked_info(path, place, found=None):
  """The info, if files are as they were written, and for this place.

  Args:
    path: of the checkpoint.
    place: see `restore`.
    found: checksums of all files; None looks at the info alone.
  """
  try:
    manifest = json.loads((path / MANIFEST).read_bytes())
    expected = {**manifest["files"]}
    if found is None:
      found = {INFO: _checksum(path / INFO)}
      expected = {INFO: expected[INFO]}
    found.pop(MANIFEST, None)
    wrong = sorted(
      name
      for name in expected.keys() | found.keys()
      if expected.get(name) != found.get(name)
    )
    if wrong:
      raise Damaged(path, f"{', '.join(wrong[:3])} changed")
    made_for = manifest.get("place", {})
    for name, here in (place or {}).items():
      if made_for.get(name, here) != here:
        there = made_for[name]
        raise Misplaced(path, f"it was written for {name} {there}, not {here}")
    return json.loads((path / INFO).read_bytes())
  except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
    raise Damaged(path, error) from error
  except (ValueError, KeyError, TypeError, AttributeError) as error:
    raise Damaged(path, error) from error


def _check_room(path, tree):
  """Refuses what cannot fit: Orbax's threads do not always survive a full disk."""
  disk = shutil.disk_usage(path)
  # Some network file systems do not tell their size.
  if disk.total and disk.free < sum(x.nbytes for x in jax.tree.leaves(tree)):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _by_size(tree):
  """Large arrays by name, and the tree of the others."""
  flat: dict[str, Any] = dict(traverse_util.flatten_dict(tree, sep="."))
  apart = {name: x for name, x in flat.items() if x.nbytes >= _LARGE}
  if not apart:
    return {}, tree
  others = {name: x for name, x in flat.items() if name not in apart}
  return apart, traverse_util.unflatten_dict(others, sep=".")


def large(path: Path) -> dict[str, np.ndarray]:
  """Large arrays of a checkpoint, which are read when they are used.

  Args:
    path: where it is.
  """
  return {
    file.stem: np.load(file, mmap_mode="r", allow_pickle=False)
    for file in sorted((path / LARGE).glob("*.npy"))
  }


def _with_large(tree, path):
  """The tree with the arrays that `_by_size` has taken from it."""
  flat: dict[str, Any] = dict(traverse_util.flatten_dict(tree, sep="."))
  found = large(path)
  return traverse_util.unflatten_dict(flat | found, sep=".") if found else tree


def _write_arrays(path, tree):
  if jax.process_index():
    # Orbax writes in the first process only. What others write ends with them.
    path.mkdir()
    flat: dict[str, Any] = dict(traverse_util.flatten_dict(tree, sep="/"))
    np.savez(path / _COPY, **flat)
    return
  with quiet.other_threads():
    problem = None
    try:
      with _plain(path) as named, _checkpointer() as checkpointer:
        checkpointer.save(named, args=ocp.args.PyTreeSave(tree))
    except OSError as error:
      problem = OSError(error.errno, error.strerror or str(error))
    except Exception as error:
      problem = _as_disk_error(error) or OSError(
        f"Orbax could not write {path.name}: {error}"
      )
    if problem is not None:
      raise problem  # Without its trace, which would keep threads' work alive.


def _as_disk_error(error):
  """What the system has said, if an error quotes it: kernels have own types."""
  quoted = [code for code in DISK_TROUBLE if os.strerror(code) in str(error)]
  return OSError(quoted[0], os.strerror(quoted[0])) if quoted else None


@contextlib.contextmanager
def _plain(path: Path) -> Iterator[Path]:
  """A path to the same place, in whose name Orbax sees no pattern.

  It would take `run[1]` for `run1`, and the halves of `a\\b` for two directories.
  """
  if re.fullmatch(r"[\w/ .,:+=@~-]+", path.as_posix()):
    yield path
    return
  with tempfile.TemporaryDirectory(prefix="mnemonics_jax_") as folder:
    link = Path(folder) / "checkpoint"
    link.symlink_to(path.parent, target_is_directory=True)
    yield link / path.name


def _read_back(path, tree):
  """Raises OSError unless a reader will find there what was written."""
  small = sum(x.nbytes for x in jax.tree.leaves(tree)) <= _READ_BACK_BYTES
  try:
    read = _read_arrays if small else _structure
    with quiet.other_threads():
      found = _with_large(read(path / ARRAYS), path)
    same = jax.tree.map(_equal if small else _alike, found, tree)
    problem = None if all(jax.tree.leaves(same)) else "it differs"
  except Exception as error:  # Other keys are a ValueError of JAX's.
    problem = error
  if problem is not None:
    text = f"what was written could not be read back ({problem})"
    raise _as_disk_error(problem) or OSError(text)


def _alike(found, written):
  return (found.shape, found.dtype) == (written.shape, written.dtype)


def _equal(found, written):
  as_bytes = lambda array: np.ascontiguousarray(array).reshape(-1).view("B")
  return _alike(found, written) and np.array_equal(
    as_bytes(found), as_bytes(written)
  )


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
  as_numpy = jax.tree.map(
    lambda _: ocp.RestoreArgs(restore_type=np.ndarray), _structure(path)
  )
  args = ocp.args.PyTreeRestore(restore_args=as_numpy)
  with (
    _plain(path) as named,
    _checkpointer() as checkpointer,
    warnings.catch_warnings(),
  ):
    # That no device is named is what host arrays are about.
    warnings.simplefilter("ignore")
    return checkpointer.restore(named, args=args)


def _structure(path):
  """Shapes and types of the arrays, in their tree."""
  if (path / _COPY).exists():
    return _read_arrays(path)
  with _plain(path) as named, _checkpointer() as checkpointer:
    return checkpointer.metadata(named).item_metadata.tree


def _files(path):
  return [file for file in sorted(path.rglob("*")) if file.is_file()]


def _checksums(path):
  return {str(file.relative_to(path)): _checksum(file) for file in _files(path)}


def _checksum(file):
  with file.open("rb") as content:
    return hashlib.file_digest(content, "sha256").hexdigest()
