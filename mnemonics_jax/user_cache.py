"""Where this package keeps, for one user, what it could make again."""

import os
from pathlib import Path


def default_directory() -> Path:
  """The package's directory among the user's caches; it may not exist yet.

  >>> default_directory().name
  'mnemonics_jax'
  """
  root = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
  return Path(root) / "mnemonics_jax"
