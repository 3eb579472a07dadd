"""Compiled programs kept on disk: a second start takes them from there.

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
  # Short ones, too: there are a hundred of them, a quarter of a second start.
  least = "jax_persistent_cache_min_compile_time_secs"
  before = getattr(jax.config, least)
  jax.config.update(least, 0.0)
  try:
    yield
  finally:
    jax.config.update(least, before)
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
