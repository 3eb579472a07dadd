"""Work directories: their names, and what can be one."""

import os
from pathlib import Path

from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings


def default(settings: Settings, data: int, root: str = "runs") -> Path:
  """A directory of its own for all settings that give the same numbers.

  Args:
    settings: of a run.
    data: the checksum of what it learns.
    root: where directories of runs are.
  """
  # A run begun when its name still depended on how --data was written goes on.
  former = Path(root) / settings.name(data, with_place=True)
  return former if former.exists() else Path(root) / settings.name(data)


def fresh(workdir: Path) -> Path:
  """`workdir`, or the first of `workdir-2`, `workdir-3`... that is not there."""
  candidate, number = workdir, 2
  while candidate.exists():
    candidate, number = Path(f"{workdir}-{number}"), number + 1
  return candidate


def check(flag: str, path: Path) -> None:
  """Refuses what is no directory and could not become one."""
  try:
    nearest = next(
      part for part in (path, *path.absolute().parents) if part.exists()
    )
    if not nearest.is_dir():
      problem = f"{nearest} is not a directory"
    elif not os.access(nearest, os.W_OK | os.X_OK):
      problem = f"{nearest} may not be written"
    else:
      return
  except OSError as error:
    problem = error.strerror
  raise UserError(
    flag, f"`{flag}={path}` cannot be used ({problem})", "choose another one"
  )
