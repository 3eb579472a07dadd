"""Many paths in little memory: a folder may have millions of images."""

import array
from collections.abc import Iterable, Sequence
import os
from pathlib import Path
from typing import overload


class Paths(Sequence[Path]):
  """Paths below a directory; each is made when it is asked for.

  A list of `Path` takes some 600 bytes for each, which is a tenth of a small
  image.

  >>> paths = Paths(Path("pets"))
  >>> paths.extend([Path("pets/cat/1.png"), Path("pets/dog/2.png")])
  >>> len(paths), paths[-1].name
  (2, '2.png')

  Args:
    root: the directory.
  """

  def __init__(self, root: Path):
    self._root = root
    self._names, self._ends = bytearray(), array.array("q", [0])

  def extend(self, paths: Iterable[Path]) -> None:
    """Adds paths, in this order."""
    for path in paths:
      self._names += os.fsencode(path.relative_to(self._root))
      self._ends.append(len(self._names))

  def __len__(self) -> int:
    return len(self._ends) - 1

  @overload
  def __getitem__(self, index: int) -> Path: ...

  @overload
  def __getitem__(self, index: slice) -> list[Path]: ...

  def __getitem__(self, index):
    if isinstance(index, slice):
      return [self[at] for at in range(*index.indices(len(self)))]
    at = range(len(self))[index]
    name = self._names[self._ends[at] : self._ends[at + 1]]
    return self._root / os.fsdecode(bytes(name))
