"""Arrays and what belongs to them in one directory: complete or absent.

Checkpoints, saved learners, cached base models, exports and published models are
such directories. Each holds its arrays, a JSON file with everything else, and
`manifest.json` with the checksum of every file. A directory is written under another
name, read back and synced before it gets its own name. Reading checks every file.
Nothing that is read is ever executed.

A checkpoint holds its arrays as Orbax writes them, in `arrays/`, and each large array
in a file below `large/`. The others hold them in one safetensors file. All that Orbax
needs is in the second half of this file, and nothing is imported for it before.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import errno
import gc
import hashlib
import json
import logging
import os
from pathlib import Path
import re
import shutil
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple
import warnings

import ml_dtypes
import numpy as np

from mnemonics_jax.errors import DISK_TROUBLE, UserError
from mnemonics_jax.runs import drafts

if TYPE_CHECKING:  # It needs JAX, and what a published model says does not.
  from mnemonics_jax.types import PyTree


class Kind(NamedTuple):
  """What differs from one kind of directory to another.

  Attributes:
    arrays: name of the safetensors file, or of the directory that Orbax writes.
    info: name of the JSON file.
    format: the newest format that this version knows.
    separator: stands between the parts of an array's name in safetensors.
    documented: whether other programs read it. Its JSON then has the format and the
      checksum of the arrays, and further files may be added. The first ones had no
      manifest.
  """

  arrays: str
  info: str
  format: int
  separator: str = "/"
  documented: bool = False


CHECKPOINT = Kind("arrays", "info.json", format=1)
LEARNER = Kind("arrays.safetensors", "info.json", format=2)
BASE_MODEL = LEARNER
EXPORT = Kind("model.safetensors", "model.json", 1, documented=True)
PUBLISHED = Kind(
  "model.safetensors", "base_model.json", 1, ".", documented=True
)

MANIFEST, WEIGHTS_SHA256 = "manifest.json", "weights_sha256"
_LARGE_DIR, _COPY = "large", "arrays.npz"
# Bytes from which an array is mapped into memory instead of read.
_LARGE = 2**28
# Orbax's values of larger trees are not read back, which would take their size again.
_READ_BACK_BYTES = 2**28


class Damaged(Exception):
  """A directory does not hold what was written.

  Attributes:
    path: the directory.
    why: what is wrong with it.
  """

  def __init__(self, path: Path, why: object):
    super().__init__(f"{path} is damaged ({why})")
    self.path, self.why = path, why


# What JSON and arrays raise that somebody has changed.
_UNREADABLE = (
  ValueError, LookupError, TypeError, AttributeError, RecursionError
)  # fmt: skip


class Misplaced(Damaged):
  """A directory is whole, but was written for another place."""


def save(
  path: Path,
  tree: "PyTree",
  info: Mapping[str, Any] | None = None,
  place: Mapping[str, Any] | None = None,
  *,
  kind: Kind = CHECKPOINT,
  replace: bool = False,
  more: Callable[[Path], None] | None = None,
) -> int:
  """Writes `tree` to the directory `path` and returns its size in bytes.

  Args:
    path: where to.
    tree: nested dicts of arrays.
    info: JSON values that belong to them.
    place: what they are a checkpoint of, such as a run and a phase of it.
    kind: which files to write.
    replace: whether a directory may be there, which is then replaced.
    more: writes further files into the directory that it is given.

  Raises:
    OSError: the disk is full or cannot be written, or what was written could not
      be read again.
  """
  import jax

  path = Path(path).absolute()
  tree, info = jax.tree.map(np.asarray, tree), dict(info or {})
  with drafts.drafting(path, replace=replace) as draft:
    _check_room(draft, jax.tree.leaves(tree))
    if kind is CHECKPOINT:
      _write_with_orbax(draft, tree)
    else:
      _write_tensors(draft / kind.arrays, _flat(tree, kind.separator))
    if more is not None:
      more(draft)
    if kind.documented:
      info[WEIGHTS_SHA256] = _checksum(draft / kind.arrays)
      info["manifest"] = MANIFEST
    (draft / kind.info).write_text(json.dumps(info, indent=1) + "\n")
    manifest = {
      "format": kind.format,
      "place": dict(place or {}),
      "files": _checksums(draft),
    }
    (draft / MANIFEST).write_text(json.dumps(manifest, indent=1) + "\n")
    _read_back(draft, tree, kind)
  return sum(file.stat().st_size for file in _files(path))


def restore(
  path: Path, place: Mapping[str, Any] | None = None, kind: Kind = CHECKPOINT
) -> tuple["PyTree", dict[str, Any]]:
  """The arrays and the info of a directory.

  Args:
    path: where it is.
    place: what it should be a checkpoint of, as far as the caller knows.
    kind: what it should be. The older form of a learner or a base model is read, too.

  Raises:
    Damaged: a file is missing, added or different from what was written, or all
      of it was written for another place.
    UserError: a newer version wrote it.
    OSError: it cannot be read at the moment, or not by this version of Orbax.
  """
  path = Path(path).absolute()
  info = _checked_info(path, place, kind, _checksums(path))
  if (path / CHECKPOINT.arrays).is_dir():
    if any(part.is_symlink() for part in path.rglob("*")):
      raise Damaged(path, "a link leads out of it")
    return _read_with_orbax(path), info
  try:
    flat = _read_tensors(path / kind.arrays)
  except _UNREADABLE as error:
    raise Damaged(path, error) from error
  return _nested(flat, kind.separator), info


def restore_info(
  path: Path, place: Mapping[str, Any] | None = None, kind: Kind = CHECKPOINT
) -> dict[str, Any]:
  """The info alone, in no time; arguments and errors are those of `restore`."""
  return _checked_info(Path(path).absolute(), place, kind)


def _checked_info(path, place, kind, found=None):
  """The info, if files are as they were written, and for this place.

  Args:
    path: of the directory.
    place: see `restore`.
    kind: of the directory.
    found: checksums of all files; None looks at the info alone.
  """
  try:
    manifest = _manifest(path, kind)
    expected = {**manifest["files"]}
    if found is None:
      found = {kind.info: _checksum(path / kind.info)}
      expected = {kind.info: expected[kind.info]}
    found.pop(MANIFEST, None)
    # People may put notes into a directory for other programs.
    names = expected.keys() | (() if kind.documented else found.keys())
    wrong = sorted(n for n in names if expected.get(n) != found.get(n))
    if wrong:
      raise Damaged(path, f"{', '.join(wrong[:3])} changed")
    made_for = manifest.get("place", {})
    for name, here in (place or {}).items():
      if made_for.get(name, here) != here:
        there = made_for[name]
        raise Misplaced(path, f"it was written for {name} {there}, not {here}")
    return json.loads((path / kind.info).read_bytes())
  except UserError:  # It is a ValueError.
    raise
  except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
    raise Damaged(path, error) from error
  except _UNREADABLE as error:
    raise Damaged(path, error) from error


def _manifest(path, kind):
  """The object in manifest.json, or what stands for it."""
  for part in (path / MANIFEST, path / kind.info):
    if part.exists() and not part.is_file():  # Reading a pipe takes for ever.
      raise ValueError(f"{part.name} is not a file")
  if kind.documented:
    info = json.loads((path / kind.info).read_bytes())
    _check_format(path / kind.info, info["format"], kind)
    if not (path / MANIFEST).exists() and "manifest" not in info:
      return {"files": {kind.arrays: info[WEIGHTS_SHA256]}}
  manifest = json.loads((path / MANIFEST).read_bytes())
  _check_format(path, manifest.get("format", 1), kind)
  return manifest


def _check_format(path, found, kind):
  """Refuses what a newer version wrote."""
  if found > kind.format:
    raise UserError(
      "path",
      f"{path} has format {found}, and this version knows formats up to"
      f" {kind.format}",
      "install the version that wrote it, or a newer one",
    )


def _check_room(path, leaves):
  """Refuses what cannot fit: Orbax's threads do not always survive a full disk."""
  disk = shutil.disk_usage(path)
  # Some network file systems do not tell their size.
  if disk.total and disk.free < sum(x.nbytes for x in leaves):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _read_back(path, tree, kind):
  """Raises OSError unless a reader will find there what was written."""
  import jax

  small = kind is not CHECKPOINT or (
    sum(x.nbytes for x in jax.tree.leaves(tree)) <= _READ_BACK_BYTES
  )
  try:
    if kind is CHECKPOINT:
      read = _read_arrays if small else _structure
      with other_threads():
        found = _with_large(read(path / CHECKPOINT.arrays), path)
    else:
      found = _read_tensors(path / kind.arrays)
      tree = _flat(tree, kind.separator)
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
  return _alike(found, written) and np.array_equal(
    _as_bytes(found), _as_bytes(written)
  )


def _as_bytes(array):
  return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def _files(path):
  return [file for file in sorted(path.rglob("*")) if file.is_file()]


def _checksums(path):
  return {str(file.relative_to(path)): _checksum(file) for file in _files(path)}


def _checksum(file):
  with file.open("rb") as content:
    return hashlib.file_digest(content, "sha256").hexdigest()


def flatten(
  tree: Mapping[str, Any], above: str = "", separator: str = "."
) -> Iterator[tuple[str, np.ndarray]]:
  """Arrays of nested dicts, by names with separators."""
  for name, part in tree.items():
    if isinstance(part, Mapping):
      yield from flatten(part, f"{above}{name}{separator}", separator)
    else:
      yield f"{above}{name}", np.asarray(part)


def _flat(tree, separator):
  return dict(flatten(tree, separator=separator))


def _nested(flat, separator):
  """The tree of `flatten`; what was empty is lost."""
  tree: dict[str, Any] = {}
  for name, array in flat.items():
    *parents, last = name.split(separator)
    place = tree
    for parent in parents:
      place = place.setdefault(parent, {})
    place[last] = array
  return tree


# Safetensors: https://huggingface.co/docs/safetensors. By name there, in the order in
# which that library sorts arrays.
_TYPES = {
  "U64": "uint64", "I64": "int64", "F64": "float64", "C64": "complex64",
  "F32": "float32", "U32": "uint32", "I32": "int32", "BF16": "bfloat16",
  "F16": "float16", "U16": "uint16", "I16": "int16", "F8_E4M3": "float8_e4m3fn",
  "F8_E5M2": "float8_e5m2", "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip
_BY_TYPE = {ours: theirs for theirs, ours in _TYPES.items()}
_ORDER = {ours: number for number, ours in enumerate(_TYPES.values())}


def _write_tensors(file, arrays):
  names = sorted(arrays, key=lambda n: (_ORDER[arrays[n].dtype.name], n))
  header, start = {}, 0
  for name in names:
    array = arrays[name]
    header[name] = {
      "dtype": _BY_TYPE[array.dtype.name],
      "shape": list(array.shape),
      "data_offsets": [start, start := start + array.nbytes],
    }
  text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
  text += b" " * (-len(text) % 8)
  with file.open("wb") as out:
    out.write(len(text).to_bytes(8, "little") + text)
    for name in names:
      out.write(_as_bytes(arrays[name]).data)


def _read_tensors(file):
  """Arrays by name; large ones are read when they are used."""
  whole = np.memmap(file, np.uint8, "r")
  first = 8 + int.from_bytes(whole[:8].tobytes(), "little")
  arrays = {}
  for name, about in json.loads(whole[8:first].tobytes()).items():
    if name == "__metadata__":
      continue
    start, stop = about["data_offsets"]
    if not 0 <= start <= stop <= len(whole) - first:
      raise ValueError(f"{name} is not in {file.name}")
    ours, shape = _TYPES[about["dtype"]], tuple(about["shape"])
    array = whole[first + start : first + stop]
    array = array.view(getattr(ml_dtypes, ours, ours)).reshape(shape)
    arrays[name] = array if array.nbytes >= _LARGE else np.array(array)
  return arrays


# Orbax.

_VOICES = ("absl", "asyncio", "concurrent.futures")
# Seconds for a thread that has failed, and for what it had begun.
_LONGEST, _AFTER = 10.0, 0.5


def _write_with_orbax(path, tree):
  flat = dict(flatten(tree))
  apart = {name: x for name, x in flat.items() if x.nbytes >= _LARGE}
  if apart:
    rest = {name: x for name, x in flat.items() if name not in apart}
    tree = _nested(rest, ".")
  _write_arrays(path / CHECKPOINT.arrays, tree)
  for name, array in apart.items():
    (path / _LARGE_DIR).mkdir(exist_ok=True)
    np.save(path / _LARGE_DIR / f"{name}.npy", array, allow_pickle=False)


def _read_with_orbax(path):
  try:
    with other_threads():
      arrays = _read_arrays(path / CHECKPOINT.arrays)
  except Exception as error:
    known = _as_disk_error(error)
    raise known or OSError(f"Orbax could not read it: {error}") from error
  return _with_large(arrays, path)


def large(path: Path) -> dict[str, np.ndarray]:
  """Large arrays of a checkpoint, which are read when they are used."""
  return {
    file.stem: np.load(file, mmap_mode="r", allow_pickle=False)
    for file in sorted((path / _LARGE_DIR).glob("*.npy"))
  }


def _with_large(tree, path):
  """The tree with the arrays that `_write_with_orbax` has taken from it."""
  found = large(path)
  return _nested(dict(flatten(tree)) | found, ".") if found else tree


def _write_arrays(path, tree):
  import jax
  import orbax.checkpoint as ocp

  if jax.process_index():
    # Orbax writes in the first process only. What others write ends with them.
    path.mkdir()
    arrays: dict[str, Any] = _flat(tree, "/")
    np.savez(path / _COPY, **arrays)
    return
  with other_threads():
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
  """The error of the system that an error of a kernel quotes, or None."""
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


def _checkpointer():
  """For this process alone: each has a directory of its own to write to."""
  import jax
  import orbax.checkpoint as ocp

  me = jax.process_index()
  alone = ocp.options.MultiprocessingOptions(
    primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"own{me}"
  )
  handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
  return ocp.Checkpointer(handler, multiprocessing_options=alone)


def _read_arrays(path):
  if (path / _COPY).exists():
    with np.load(path / _COPY, allow_pickle=False) as arrays:
      return _nested(dict(arrays), "/")
  import jax
  import orbax.checkpoint as ocp

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


@contextlib.contextmanager
def other_threads() -> Iterator[None]:
  """Leaves the exception that is raised here as the only word on it.

  Orbax writes with threads. What goes wrong in one is logged, warned of and printed
  in several places, before the caller gets it as an exception.
  """
  hooks = [(sys, "excepthook"), (sys, "unraisablehook")]
  hooks.append((threading, "excepthook"))
  before = [getattr(*hook) for hook in hooks]
  loggers = [logging.getLogger(name) for name in _VOICES]
  were_disabled = [logger.disabled for logger in loggers]
  with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")
    for hook in hooks:
      setattr(*hook, lambda *_: None)
    for logger in loggers:
      logger.disabled = True
    try:
      yield
    except BaseException:
      _let_end()
      raise
    finally:
      for hook, function in zip(hooks, before, strict=True):
        setattr(*hook, function)
      for logger, was in zip(loggers, were_disabled, strict=True):
        logger.disabled = was


def _let_end():
  """Waits for what would complain later, of an error that is known."""
  for thread in threading.enumerate():
    if type(thread).__module__.startswith("orbax."):
      threading.Thread.join(thread, _LONGEST)  # Its own raises the error again.
  time.sleep(_AFTER)  # Kernels call back, and find that nobody waits for them.
  gc.collect()  # Half of a coroutine complains when it goes.
