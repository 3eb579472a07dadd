"""Compiled programs kept on disk: a second start takes the long ones from there.

They are kept in $JAX_COMPILATION_CACHE_DIR, or else with the user's caches.
Without a directory that can be written, every start compiles.
"""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path

from mnemonics_jax import user_cache


@contextlib.contextmanager
def kept() -> Iterator[None]:
  """Keeps what is compiled in the meantime."""
  import jax
  from jax.experimental.compilation_cache import compilation_cache

  chosen = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009
  directory = None if chosen else _directory()
  if directory is None:
    yield
    return
  jax.config.update("jax_compilation_cache_dir", str(directory))
  try:
    yield
  finally:
    jax.config.update("jax_compilation_cache_dir", None)
    compilation_cache.reset_cache()


def _directory() -> Path | None:
  """The user's own cache directory, if it can be written."""
  path = user_cache.default_directory() / "xla"
  try:
    path.mkdir(parents=True, exist_ok=True)
  except OSError:
    return None
  return path if os.access(path, os.W_OK | os.X_OK) else None
