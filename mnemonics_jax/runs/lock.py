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
  with contextlib.ExitStack() as stack:
    try:
      lock = files.locked(layout.lock_path(workdir))
      file = stack.enter_context(lock)
    except BlockingIOError as error:
      raise BusyError(
        "workdir",
        f"`workdir={workdir}` is in use by {error.strerror}",
        "wait for it or choose another one",
      ) from None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}\n")
    file.flush()
    for draft in filter(files.is_draft, workdir.rglob("*.draft")):
      with contextlib.suppress(OSError):  # Somebody else was faster.
        draft.unlink()
    yield


@contextlib.contextmanager
def waiting(path: Path) -> Iterator[None]:
  """Holds the lock `path`; waits while another process does.

  >>> with waiting(Path("table.lock")):
  ...   pass  # Read what others have written, write it with more.

  Args:
    path: of a file that serves as lock; it is made and stays.
  """
  with files.locked(path, wait=True):
    yield
