"""Work directories: their names, and what can be one."""

import dataclasses
import hashlib
import json
import os
from pathlib import Path

from experiments.settings import Settings
from mnemonics_jax.errors import UserError
from mnemonics_jax.version import NUMERICS


def default(settings: Settings, data: int, root: str = "runs") -> Path:
  """A directory of its own for whatever gives the same numbers.

  Args:
    settings: of a run.
    data: the checksum of what it learns.
    root: where directories of runs are.
  """
  usual = {field.name: field.default for field in dataclasses.fields(settings)}
  # Settings that come later leave the names of runs without them as they are.
  chosen = {k: v for k, v in settings.identity().items() if v != usual[k]}
  key = json.dumps([chosen, data, NUMERICS])
  digest = hashlib.sha256(key.encode()).hexdigest()
  memory = settings.memory.replace(":", "-")
  if settings.codec != "raw":
    memory += f"_{settings.codec.replace(':', '-')}"
  parts = [settings.dataset, settings.method, settings.exemplars, memory]
  return Path(root) / "_".join([*parts, f"n{settings.phases}", digest[:8]])


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
