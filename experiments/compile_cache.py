"""Compiled programs kept on disk: a second start takes them from there.

They are kept in $JAX_COMPILATION_CACHE_DIR, or else with the user's caches. They
are run as they are found, so a directory in which others could put some is not
used. Without one that can be, every start compiles.
"""

from collections.abc import Iterator
import contextlib
import glob
import os
from pathlib import Path
import re
import sys
import warnings

from mnemonics_jax import files


@contextlib.contextmanager
def kept() -> Iterator[None]:
  """Keeps what is compiled in the meantime."""
  import jax
  from jax.experimental.compilation_cache import compilation_cache

  chosen = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009
  if chosen and "://" in chosen:  # A bucket.
    yield
    return
  directory = _directory(chosen)
  used = None if directory is None else str(directory)
  jax.config.update("jax_compilation_cache_dir", used)
  least = "jax_persistent_cache_min_compile_time_secs"
  before = getattr(jax.config, least)
  if not chosen:
    # Short ones, too: there are a hundred of them, a quarter of a second start.
    jax.config.update(least, 0.0)
  try:
    with contextlib.nullcontext() if directory is None else _mended(directory):
      yield
  finally:
    jax.config.update(least, before)
    jax.config.update("jax_compilation_cache_dir", chosen)
    compilation_cache.reset_cache()


def _directory(chosen: str | None) -> Path | None:
  """Where they are kept, if only this user can write there."""
  default = files.user_cache() / "xla"
  path = Path(chosen) if chosen else default
  try:
    files.make_private(path)
    problem = files.not_private(path)
  except OSError:
    return None
  if problem is not None:
    print(
      f"Note: {problem}, so compiled programs are neither taken from there nor"
      " kept; remove it, and one of your own is made.",
      file=sys.stderr,
    )
    return None
  return path if os.access(path, os.W_OK | os.X_OK) else None


# What JAX warns of when it cannot read an entry, or not write one.
_TROUBLE = re.compile(
  r"Error (reading|writing) persistent compilation cache entry for '(.+?)':"
)


@contextlib.contextmanager
def _mended(directory: Path) -> Iterator[None]:
  """Removes entries of programs that JAX has trouble with, and says nothing.

  It compiles them then, and keeps them if there is nothing in their place: a kill
  or a full disk leaves half an entry, which it would never replace.
  """
  with warnings.catch_warnings():
    warnings.filterwarnings("always", _TROUBLE.pattern)
    show = warnings.showwarning

    def mend(message, *place, **more):
      if found := _TROUBLE.match(str(message)):
        for entry in directory.glob(f"{glob.escape(found[2])}-*"):
          with contextlib.suppress(OSError):
            entry.unlink()
      else:
        show(message, *place, **more)

    warnings.showwarning = mend
    yield
