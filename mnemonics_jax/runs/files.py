"""Files that are whole at any moment, whatever ends the program."""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path
import re
from typing import IO


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
  """Opens a draft, which takes the place of `path` when the block has ended.

  A reader sees the old file or the new one. Several processes may replace one
  file: the last one wins.
  """
  draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
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
  return re.fullmatch(r".+\.[0-9]+\.draft", path.name) is not None


def write_text(path: Path, text: str) -> None:
  """Replaces what is in `path` by a text."""
  with replacing(path) as file:
    file.write(text.encode())
