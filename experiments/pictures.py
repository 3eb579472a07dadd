"""Image files on a command line, and the classes that their folders name."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from mnemonics_jax.data.dataset import printable
from mnemonics_jax.data.folder import SUFFIXES, image_files
from mnemonics_jax.errors import UserError


class Picture(NamedTuple):
  """A file, perhaps in a folder that says what it shows.

  Attributes:
    path: of the file.
    folder: the nearest folder that names a class, None if none does.
  """

  path: Path
  folder: str | None


def find(
  arguments: Sequence[str], classes: Mapping[str, object]
) -> list[Picture]:
  """The images that arguments name, those of a folder in order.

  Args:
    arguments: files and folders.
    classes: by the names that their folders may have.
  """
  found = []
  for argument in arguments:
    path = Path(argument).expanduser()
    if path.is_dir():
      inside = _inside(path)
      if not inside:
        raise UserError(
          "image",
          f"{printable(path)} has no image ({' '.join(SUFFIXES)})",
          "name images or a folder of them",
        )
      found += [Picture(file, _folder(path, file, classes)) for file in inside]
    elif path.exists():
      found.append(Picture(path, None))
    else:
      raise UserError(
        "image",
        f"There is no {printable(path)}",
        "name images or folders of them",
      )
  return found


def _inside(directory: Path) -> list[Path]:
  try:
    return sorted(image_files(directory, Counter()))
  except OSError as error:
    raise UserError(
      "image",
      f"{printable(error.filename or directory)} cannot be read"
      f" ({error.strerror})",
      "check its permissions",
    ) from error


def _folder(root, file, classes):
  """Of those below the root, or the root itself."""
  inside = file.relative_to(root).parent.parts
  for name in reversed((root.resolve().name, *inside)):
    if printable(name) in classes:
      return printable(name)
  return None
