"""A work directory belongs to one configuration, on one set of data."""

from collections.abc import Mapping
import json
from pathlib import Path
from typing import Any

from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import files, layout
from mnemonics_jax.runs.environment import changes_since, command, environment
from mnemonics_jax.version import NUMERICS

# The same data may lie elsewhere now.
_PLACES = ("data",)


def claim(
  workdir: Path, settings: Mapping[str, Any], checksum: int
) -> str | None:
  """Makes `workdir` this configuration's own, or refuses.

  An existing directory is only entered if it is empty or holds a
  `config.json` with the same settings; nothing in another one is touched.

  Args:
    workdir: the directory.
    settings: all that decides the numbers, in JSON's types.
    checksum: of the data they are made of.

  Returns:
    What else has changed since the run began, if it matters, for a person.
  """
  settings = json.loads(json.dumps(dict(settings)))  # As they are read again.
  path = layout.config_path(workdir)
  if path.exists():
    claimed = layout.read_config(workdir)
    _compare(workdir, claimed, settings, checksum)
    return changes_since(claimed.get("environment", {}))
  try:
    # A kill may have left a draft of config.json.
    if workdir.exists() and (
      not workdir.is_dir()
      or not all(_is_draft_of(path, other) for other in workdir.iterdir())
    ):
      raise UserError(
        "workdir",
        f"`workdir={workdir}` exists and is not a run of this program",
        "choose an empty or new directory",
      )
    layout.write_config(
      workdir,
      {
        "command": command(),
        "settings": settings,
        "data": checksum,
        "numerics": NUMERICS,
        "environment": environment(),
      },
    )
  except OSError as error:
    raise UserError(
      "workdir",
      f"`workdir={workdir}` cannot be used ({error})",
      "choose another one",
    ) from error
  return None


def _compare(workdir, claimed, settings, checksum):
  """Refuses a directory in which other numbers are made."""
  before = claimed.get("settings", {})
  changes = ", ".join(
    f"{name} ({before.get(name)} there, {settings.get(name)} now)"
    for name in sorted(before.keys() | settings.keys())
    if before.get(name) != settings.get(name) and name not in _PLACES
  )
  problem = f"other settings: {changes}" if changes else None
  if problem is None and claimed.get("data", checksum) != checksum:
    problem = "other data, though of the same name"
  if problem is None and claimed.get("numerics", 0) != NUMERICS:
    problem = "numbers that this version would not make"
  if problem is not None:
    raise UserError(
      "workdir",
      f"`workdir={workdir}` belongs to a run with {problem}",
      "choose another one",
    )


def _is_draft_of(path, other):
  return files.is_draft(other) and other.name.startswith(f"{path.name}.")
