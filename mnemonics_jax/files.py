"""Files that are whole at any moment, locks, and directories for one user alone."""

from collections.abc import Iterator
import contextlib
import errno
import os
from pathlib import Path
import re
import secrets
import stat
from typing import IO

try:
  import fcntl
except ImportError:  # Windows has no such locks.
  fcntl = None


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
  """Opens a draft, which takes the place of `path` when the block has ended.

  A reader sees the old file or the new one. Several processes may replace one
  file: the last one wins.
  """
  unique = (
    f"{os.getpid()}-{secrets.token_hex(4)}"  # A name that nobody chooses.
  )
  draft = path.with_name(f"{path.name}.{unique}.draft")
  try:
    with draft.open("wb") as file:
      yield file
      file.flush()
      os.fsync(file.fileno())
    os.replace(draft, path)
    sync(path.parent)
  except BaseException:
    with contextlib.suppress(OSError):
      draft.unlink(missing_ok=True)
    raise


def sync(path: Path) -> None:
  """Asks the disk to hold a file, or the names in a directory."""
  if path.is_dir() and os.name == "nt":
    return
  descriptor = os.open(path, os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    # Some network disks do not know it of directories.
    if not path.is_dir() or error.errno not in (errno.EINVAL, errno.ENOTSUP):
      raise
  finally:
    os.close(descriptor)


def make_directory(path: Path) -> None:
  """Makes a directory, and those above it, that a power failure leaves there."""
  if not path.is_dir():
    make_directory(path.parent)
    path.mkdir(exist_ok=True)
    sync(path.parent)


def is_draft(path: Path) -> bool:
  """Whether a kill has left this, or somebody writes it now."""
  return re.fullmatch(r".+\.[0-9]+-[0-9a-f]{8}\.draft", path.name) is not None


def write_text(path: Path, text: str) -> None:
  """Replaces what is in `path` by a text."""
  with replacing(path) as file:
    file.write(text.encode())


def regular(path: Path) -> Path:
  """Returns the path of a file; a pipe would block its reader for ever.

  Raises:
    OSError: if this is no file.
  """
  if not stat.S_ISREG(path.stat().st_mode):
    raise OSError(errno.EINVAL, "not a regular file", str(path))
  return path


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[IO[str]]:
  """Holds the lock `path`, a file that is made if it is missing, and stays.

  The system releases the lock when the process ends, however that happens. A file
  system without locks keeps nobody out.

  Args:
    path: of the file, which the block may read and write.
    wait: whether to wait while another process holds the lock.

  Raises:
    BlockingIOError: if another process holds it, and `wait` is false.
  """
  with path.open("a+", encoding="utf-8") as file:
    if fcntl is not None:
      try:
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
      except BlockingIOError as error:
        file.seek(0)
        said = file.read(200).strip()
        raise BlockingIOError(error.errno, said, path) from None
      except OSError:
        pass
    yield file


def user_cache() -> Path:
  """The package's directory among the user's caches; it may not exist yet.

  >>> user_cache().name
  'mnemonics_jax'
  """
  root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
  return Path(root) / "mnemonics_jax"


def make_private(path: Path) -> None:
  """Makes a directory, and those above it, for this user alone.

  >>> make_private(Path("mine"))
  >>> oct(Path("mine").stat().st_mode)[-3:]
  '700'
  """
  if not path.is_dir():
    make_private(path.parent)
    with contextlib.suppress(FileExistsError):  # Somebody else was faster.
      path.mkdir(mode=0o700)


class NotPrivateError(OSError):
  """A directory in which other users could put files."""


def private(path: Path) -> Path:
  """Makes a directory that only this user can change; returns its real path.

  Use it for code: whoever can write to a directory, or rename one above it, decides
  what runs from there. Go on with the real path: a link may lead elsewhere later.

  >>> Path("common").mkdir()
  >>> Path("common").chmod(0o777)
  >>> private(Path("common"))
  Traceback (most recent call last):
  mnemonics_jax.files.NotPrivateError: others may write to ...common

  Raises:
    NotPrivateError: says which directory is not safe, and why.
  """
  path = path.resolve()
  make_private(path)
  if os.name != "posix":
    return path
  # The owner of the root directory can change everything. In a container that is
  # not always user 0.
  above = {os.geteuid(), 0, os.stat("/").st_uid}
  for folder in (path, *path.parents):
    status = folder.lstat()
    writable = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    # Where this bit is set, as in /tmp, nobody can rename what others own.
    sticky = folder != path and status.st_mode & stat.S_ISVTX
    if status.st_uid not in (above if folder != path else {os.geteuid()}):
      raise NotPrivateError(f"{folder} belongs to another user")
    if writable and not sticky:
      raise NotPrivateError(f"others may write to {folder}")
    if not stat.S_ISDIR(status.st_mode):
      raise NotPrivateError(f"{folder} has become a link")
  return path
