"""Where a command computes, and what the process keeps: freed memory, programs."""

from collections.abc import Iterator
import contextlib
import ctypes
import glob
import os
from pathlib import Path
import re
import sys
import warnings

from absl.flags import FlagValues

from experiments import command
from experiments.flags import value_of
from mnemonics_jax import files
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs.signals import Stopped


@contextlib.contextmanager
def computing(flags: FlagValues) -> Iterator[None]:
  """Computes on the devices that flags name; only the first process prints."""
  count = _count(flags)
  keep_freed_memory()  # Before threads have heaps of their own.
  # Imported here so that a mistake in the flags is answered at once.
  import jax

  from mnemonics_jax import cpu_conv
  from mnemonics_jax.parallel import mesh, processes

  address = ("coordinator", "num_processes", "process_id")
  distributed = processes.connect(*(value_of(flags, name) for name in address))
  if count is not None:
    mesh.split_cpu(count)
  elif not distributed and not cpu_conv.choose().is_native:
    mesh.split_cpu()  # XLA's kernel gradient keeps one thread of a device busy.
  available = jax.device_count()
  if count is not None and count > available:
    raise UserError(
      "devices",
      f"`devices={count}` is more than the {available} of this machine"
      f" ({jax.default_backend()})",
      "leave it out to use all",
    )
  if count is not None and jax.process_count() > 1:
    raise _no_effect(count)
  with contextlib.ExitStack() as stack:
    if jax.process_index():
      nowhere = stack.enter_context(open(os.devnull, "w"))
      stack.enter_context(contextlib.redirect_stdout(nowhere))
      stack.enter_context(contextlib.redirect_stderr(nowhere))
    stack.enter_context(programs_kept())
    stack.enter_context(mesh.use(count))
    try:
      yield
    except Stopped:  # All processes have agreed on it.
      raise
    except (Exception, KeyboardInterrupt) as error:
      if jax.process_count() > 1:
        processes.leave_at_exit(command.exit_code(error))
      raise
  if distributed:
    jax.distributed.shutdown()


def _count(flags: FlagValues) -> int | None:
  """--devices as a number; None is all of them."""
  value = flags.devices
  if value == "all":
    return None
  if not re.fullmatch(r"[0-9]+", value) or int(value) < 1:
    raise UserError(
      "devices",
      f"`devices={value}` is neither all nor a whole number from 1",
      "write `devices=2`, or leave it out to use all",
    )
  if value_of(flags, "coordinator") is not None:
    raise _no_effect(value)
  return int(value)


def _no_effect(count) -> UserError:
  return UserError(
    "devices",
    f"`devices={count}` has no effect in several processes, each of which brings"
    " all its devices",
    "leave it out",
  )


# Of <malloc.h>: no mapping of its own for a large block, no trimming of the heap,
# and one heap for all threads, since only the first can grow as large.
_MALLOC = {
  "M_MMAP_MAX": (-4, 0),
  "M_TRIM_THRESHOLD": (-1, 2**31 - 1),
  "M_ARENA_MAX": (-8, 1),
}


def keep_freed_memory() -> bool:
  """Lets this process keep the memory that it frees; returns whether it does.

  XLA on a CPU allocates the buffers of a program in every call. glibc returns large
  blocks to the system at once, and the next call pays for every page again: 78,000
  pages for a training step of ResNet-32. The setting is one of the whole process, so
  commands make it, not the library. Other systems than Linux with glibc are left
  alone, and so are users who have set up malloc themselves.
  """
  chosen = any(name.startswith("MALLOC_") for name in os.environ)
  if sys.platform != "linux" or chosen or "GLIBC_TUNABLES" in os.environ:
    return False
  mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none.
  if mallopt is None:
    return False
  return all([mallopt(*setting) == 1 for setting in _MALLOC.values()])


@contextlib.contextmanager
def programs_kept() -> Iterator[None]:
  """Keeps compiled programs on disk, where a second start finds them.

  They are in $JAX_COMPILATION_CACHE_DIR, or else with the user's caches. JAX runs
  what it finds there, so a directory in which others may write is not used. Without
  a directory every start compiles.
  """
  import jax
  from jax.experimental.compilation_cache import compilation_cache

  chosen = getattr(jax.config, "jax_compilation_cache_dir")  # noqa: B009
  if chosen and "://" in chosen:  # A bucket.
    yield
    return
  directory = _programs(chosen)
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


def _programs(chosen: str | None) -> Path | None:
  """The directory of compiled programs, if only this user can write there."""
  try:
    path = files.private(Path(chosen or files.user_cache() / "xla"))
  except files.NotPrivateError as problem:
    print(
      f"Note: {problem}, so compiled programs are neither taken from there nor"
      " kept; remove it, and one of your own is made.",
      file=sys.stderr,
    )
    return None
  except OSError:
    return None
  return path if os.access(path, os.W_OK | os.X_OK) else None


# What JAX warns of when it cannot read an entry, or not write one.
_TROUBLE = re.compile(
  r"Error (reading|writing) persistent compilation cache entry for '(.+?)':"
)


@contextlib.contextmanager
def _mended(directory: Path) -> Iterator[None]:
  """Removes cached programs that JAX has trouble with, and says nothing.

  A kill or a full disk leaves half an entry, which JAX would never replace. Without
  it JAX compiles the program and keeps it.
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
