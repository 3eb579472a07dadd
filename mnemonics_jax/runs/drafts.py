"""Directories that are complete or absent, whatever ends the program."""

from collections.abc import Iterator
import contextlib
import ctypes
import errno
import os
from pathlib import Path
import re
import secrets
import shutil
import time

from mnemonics_jax import files

try:
  import fcntl
except ImportError:  # Windows has no such locks.
  fcntl = None


@contextlib.contextmanager
def drafting(path: Path, *, replace: bool = False) -> Iterator[Path]:
  """Yields a new directory, which gets the name `path` when the block has ended.

  A reader finds the old directory or the new one, and nothing that this call has not
  made is removed. Drafts that killed processes have left are removed first.

  Args:
    path: absolute; its parents are made.
    replace: whether a directory of this name may be there, which is then removed.
      Otherwise it may only be empty.
  """
  files.make_directory(path.parent)
  remove_drafts(path.parent, path.name)
  for aside in _asides(path) if replace else ():  # Of saves that were killed.
    if path.exists():
      shutil.rmtree(aside, ignore_errors=True)
    else:
      os.rename(aside, path)
  with _own_draft(path) as draft:
    try:
      yield draft
      for part in sorted(draft.rglob("*"), reverse=True):
        files.sync(part)  # Names in a directory after what they name.
      files.sync(draft)
      if replace and path.exists():
        _exchange(draft, path)
      else:
        os.rename(draft, path)
      files.sync(path.parent)
    finally:  # It is now the old directory, a failure, or gone.
      shutil.rmtree(draft, ignore_errors=True)


def found(path: Path) -> Path:
  """Where the directory `path` is: beside itself if a kill has left it there."""
  return path if path.exists() else next(iter(_asides(path)), path)


@contextlib.contextmanager
def _own_draft(path):
  """A new directory beside `path`; it is locked while its process lives."""
  name = f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.draft"
  draft = path.with_name(name)
  with contextlib.ExitStack() as stack:
    with _holding(path.parent, wait=True):  # Nobody takes it for left before.
      draft.mkdir()
      stack.enter_context(_holding(draft))
    yield draft


def remove_drafts(directory: Path, name: str | None = None) -> None:
  """Removes drafts of directories, unless the process that writes them lives.

  Args:
    directory: where they are.
    name: of what they are drafts of; None removes those of all names.
  """
  pattern = _beside(".+" if name is None else re.escape(name), "draft")
  drafts = [p for p in directory.glob(".*.draft") if pattern.fullmatch(p.name)]
  if not drafts:
    return
  with _holding(directory, wait=True) as alone:
    for draft in drafts if alone else ():
      with contextlib.suppress(OSError), _holding(draft) as left:
        if left:
          shutil.rmtree(draft)


def _beside(name, kind):
  return re.compile(rf"\.{name}\.[0-9]+-[0-9a-f]{{8}}\.{kind}", re.DOTALL)


_PATIENCE = 5.0


@contextlib.contextmanager
def _holding(directory, wait=False):
  """Locks a directory; yields whether it could, and no other process does.

  Another program may hold the lock for hours, so that waiting has an end.
  """
  held, descriptor = False, None
  until = time.monotonic() + (_PATIENCE if wait else 0)
  if fcntl is not None:
    descriptor = os.open(directory, os.O_RDONLY)
    while not held:
      try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = True
      except BlockingIOError:
        if time.monotonic() >= until:
          break
        time.sleep(0.01)
      except OSError:  # There are no locks here at all.
        break
  try:
    yield held
  finally:
    if descriptor is not None:
      os.close(descriptor)


# A file system that cannot exchange names says one of these.
_CANNOT = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)


def _exchange(draft, path):
  """Gives two directories each other's names, and removes the one at `draft`."""
  try:
    _swap_names(draft, path)
    return
  except OSError as error:
    if error.errno not in _CANNOT:
      raise
  aside = draft.with_suffix(".old")
  os.rename(path, aside)
  try:
    os.rename(draft, path)
  except BaseException:
    os.rename(aside, path)
    raise
  files.sync(path.parent)
  shutil.rmtree(aside, ignore_errors=True)


def _swap_names(one, other):
  """Linux can do it at once."""
  at_cwd, exchange = -100, 2
  library = None if os.name == "nt" else ctypes.CDLL(None, use_errno=True)
  if not hasattr(library, "renameat2"):
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
  names = at_cwd, os.fsencode(one), at_cwd, os.fsencode(other), exchange
  if library.renameat2(*names):
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code), str(other))


def _asides(path):
  """What was at `path` when `_exchange` was killed, newest first."""
  pattern = _beside(re.escape(path.name), "old")
  there = [p for p in path.parent.glob(".*.old") if pattern.fullmatch(p.name)]
  return sorted(there, key=lambda p: p.stat().st_mtime, reverse=True)
