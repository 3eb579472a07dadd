"""Compiles conv.cc to a library, once, and keeps it for the next start.

The name of the library has a hash of its sources and one of its content, so a damaged
file is never used. A file gets that name when it is complete. Processes that build at
the same time, or are killed, do no harm.
"""

from collections.abc import Sequence
import contextlib
import hashlib
import os
from pathlib import Path
import shutil
import signal
import subprocess
import tempfile
import time

import jax
from jaxlib import version as jaxlib

from mnemonics_jax import files

SOURCE = Path(__file__).with_name("conv.cc")
FLAGS = ("-O3", "-std=c++17", "-ffp-contract=fast", "-shared", "-fPIC", "-w")
# Options for the processor that the compiler runs on.
_NATIVE = ("-march=native", "-mcpu=native")
_COMPILERS = ("g++", "clang++", "c++")
_PROBE_SECONDS, _BUILD_SECONDS, _DAY = 20, 120, 24 * 3600


class BuildError(RuntimeError):
  """The library cannot be built."""


def library(directory: Path) -> tuple[Path, float]:
  """The path of the compiled library, and the seconds it took to build, or 0.

  Args:
    directory: where libraries are kept. This process runs code from there, so no
      other user may be able to write to it.

  Raises:
    BuildError: it cannot be built.
  """
  compiler = find_compiler()
  native, macros = _probe(compiler)
  sources = [SOURCE, *sorted(SOURCE.parent.glob("*.h"))]
  texts = [source.read_bytes() for source in sources]
  parts = (texts, macros, FLAGS, native, jaxlib.__version__)
  key = hashlib.sha256(repr(parts).encode()).hexdigest()[:16]
  began = time.monotonic()
  try:
    directory = files.private(directory)
    found = _find(directory, key)
    if found is not None:
      return found, 0.0
    path = _build(directory, key, [compiler, *FLAGS, native])
  except files.NotPrivateError as error:
    raise BuildError(f"{error}, so it is not safe") from error
  except OSError as error:
    raise BuildError(f"{directory} cannot be used ({error})") from error
  return path, time.monotonic() - began


def find_compiler() -> str:
  """The user's C++ compiler, `$CXX` before all others.

  Raises:
    BuildError: there is none.
  """
  names = filter(None, (os.environ.get("CXX"), *_COMPILERS))
  found = next(filter(None, map(shutil.which, names)), None)
  if found is None or os.name != "posix":
    raise BuildError("no C++ compiler (g++ or clang++) was found")
  return found


def compile_command(command: Sequence[str], out: Path) -> list[str]:
  """The command that compiles conv.cc to `out`."""
  headers = ["-isystem", jax.ffi.include_dir()]
  return [*command, *headers, str(SOURCE), "-o", str(out)]


def _probe(compiler):
  """The option for this processor, and the macros that the compiler predefines.

  The macros tell processors apart, where machines share a disk, and the versions of
  the compiler.
  """
  problem = BuildError(f"{compiler} does not work")
  for option in _NATIVE:
    try:
      command = [compiler, option, "-E", "-dM", "-x", "c++", os.devnull]
      return option, _run(command, _PROBE_SECONDS)
    except BuildError as error:
      problem = error
  raise problem


def _find(directory, key):
  """The library of that key, if there is one; removes damaged ones."""
  for path in sorted(directory.glob(f"conv-{key}-*.so")):
    with contextlib.suppress(FileNotFoundError):
      if path.name == _name(key, path):
        return path
      path.unlink()
  return None


def _name(key, path):
  return f"conv-{key}-{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}.so"


def _build(directory, key, command):
  for path in directory.glob("*.tmp"):  # A killed process left it.
    with contextlib.suppress(OSError):
      if time.time() - path.stat().st_mtime > _DAY:
        shutil.rmtree(path, ignore_errors=True)
  with tempfile.TemporaryDirectory(".tmp", dir=directory) as draft:
    made = Path(draft) / "conv.so"
    _run(compile_command(command, made), _BUILD_SECONDS)
    path = directory / _name(key, made)
    made.replace(path)
  return path


def _run(command, seconds):
  """The output of a command; kills it and its children after that time."""
  with subprocess.Popen(
    command,
    stdin=subprocess.DEVNULL,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    start_new_session=True,
    env=os.environ | {"LC_ALL": "C"},
  ) as process:
    try:
      out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
      problem = f"{command[0]} took more than {seconds} s"
      raise BuildError(problem) from None
    finally:
      with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
  if process.returncode:
    lines = [line for line in err.decode(errors="replace").splitlines() if line]
    errors = (
      [line for line in lines if "error" in line] or lines or ["silently"]
    )
    raise BuildError(f"{command[0]} failed: {errors[0][:200]}")
  return out
