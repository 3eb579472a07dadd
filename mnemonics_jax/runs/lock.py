"""One process at a time works in a directory, or on a file."""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path
import platform

from mnemonics_jax import files
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import layout


class BusyError(UserError):
  """Another process works in the directory.

  >>> with locked(Path("finished_run")):
  ...   try:
  ...     with locked(Path("finished_run")):  # As another process would.
  ...       pass
  ...   except BusyError as error:
  ...     print(error.fix)
  wait for it or choose another one
  """


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
  """Keeps other processes out of `workdir`; a dead one's lock counts nothing."""
  with _taken(layout.lock_path(workdir), workdir):
    for draft in filter(files.is_draft, workdir.rglob("*.draft")):
      with contextlib.suppress(OSError):  # Somebody else was faster.
        draft.unlink()
    yield


@contextlib.contextmanager
def reserved(workdir: Path) -> Iterator[None]:
  """Keeps other processes from making `workdir`, which need not exist.

  The lock is a file beside it, which is removed at the end.
  """
  place = workdir.resolve()
  path = place.with_name(f".{place.name}.lock")
  path.parent.mkdir(parents=True, exist_ok=True)
  while True:
    with _taken(path, workdir) as file:
      # Its last owner may have removed the file that was opened here.
      if path.exists() and os.path.samestat(
        path.stat(), os.fstat(file.fileno())
      ):
        try:
          yield
          return
        finally:
          with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def _taken(path, workdir):
  """Holds the lock `path`, and writes into it who does."""
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(files.locked(path))
    except BlockingIOError as error:
      raise BusyError(
        "workdir",
        f"`workdir={workdir}` is in use by {error.strerror}",
        "wait for it or choose another one",
      ) from None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}\n")
    file.flush()
    yield file
