"""Where this package keeps, for one user, what it could make again."""

import contextlib
import os
from pathlib import Path
import stat


def default_directory() -> Path:
  """The package's directory among the user's caches; it may not exist yet.

  >>> default_directory().name
  'mnemonics_jax'
  """
  root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
  return Path(root) / "mnemonics_jax"


def make_private(path: Path) -> None:
  """Makes a directory, and those above it, for this user alone.

  >>> make_private(Path("mine"))
  >>> oct(Path("mine").stat().st_mode)[-3:], not_private(Path("mine"))
  ('700', None)
  """
  if not path.is_dir():
    make_private(path.parent)
    with contextlib.suppress(FileExistsError):  # Somebody else was faster.
      path.mkdir(mode=0o700)


def not_private(path: Path) -> str | None:
  """Why code in a directory may be somebody else's; None if it cannot.

  >>> Path("common").mkdir()
  >>> Path("common").chmod(0o777)
  >>> not_private(Path("common"))
  'others may write to common'
  """
  if os.name != "posix":
    return None
  ours = default_directory()
  # Whoever writes there could replace what is below.
  for folder in (path, ours) if path.is_relative_to(ours) else (path,):
    status = folder.stat()
    if status.st_uid != os.geteuid():
      return f"{folder} belongs to another user"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
      return f"others may write to {folder}"
  return None
