"""Refuse to reuse a work directory for other settings or data, or at the same time."""

from collections.abc import Iterator, Mapping
import contextlib
import json
import os
from pathlib import Path
import platform
import re
from typing import Any

from mnemonics_jax import files
from mnemonics_jax.errors import DISK_TROUBLE, DiskError, UserError, remedy
from mnemonics_jax.identity import digest, identity, restore
from mnemonics_jax.package import NUMERICS
from mnemonics_jax.runs import journal, layout
from mnemonics_jax.runs.environment import changes_since, command, environment

# The same data may lie elsewhere now.
_PLACES = ("data",)


@contextlib.contextmanager
def claimed(
  workdir: Path, settings: Mapping[str, Any], checksum: int, **described: Any
) -> Iterator[str | None]:
  """Claims `workdir` for these settings and this process, or refuses.

  A directory must be new, empty, or hold a `config.json` with the same settings. A
  refused directory is left unchanged. Of two processes that come at once, one is refused.

  Args:
    workdir: the directory.
    settings: all that decides the numbers, in JSON's types.
    checksum: of the data they are made of.
    **described: more fields of `config.json`, which decide nothing.

  Yields:
    A sentence on what else has changed since the run began, or None.
  """
  settings = json.loads(json.dumps(dict(settings)))  # As they are read again.
  with contextlib.ExitStack() as stack:
    try:
      # A lock would be a change, too.
      _look(workdir, settings, checksum)
      workdir.mkdir(parents=True, exist_ok=True)
      stack.enter_context(locked(workdir))
      changes, first = None, not layout.seeds(workdir)
      # Another process may have been faster.
      if before := _look(workdir, settings, checksum):
        changes = changes_since(before.get("environment", {}))
      else:
        write(workdir, settings, checksum, described)
        if not first:
          path = layout.config_path(workdir)
          changes = f"{path} was damaged or missing, and was written again."
    except OSError as error:
      # To start over elsewhere is not the remedy for a run that is there.
      there = layout.config_path(workdir).exists()
      kind = DiskError if there or error.errno in DISK_TROUBLE else UserError
      raise kind(
        "workdir",
        f"`workdir={workdir}` cannot be used ({error.strerror or error})",
        f"{remedy(error)}, or choose another one",
      ) from error
    yield changes


def run_name(config: Mapping[str, Any]) -> str:
  """A hash that is equal for runs with equal results.

  Args:
    config: with the fields of config.json.
  """
  settings = config.get("settings", {})
  parts = [
    {name: settings[name] for name in settings if name not in _PLACES},
    config.get("data"),
    config.get("numerics"),
  ]
  return digest(parts, sort_keys=True)[:16]


def _look(workdir, settings, checksum):
  """The configuration that is there, if any; refuses what is not this run.

  If config.json is damaged, the checkpoints name their run.
  """
  described = {"settings": settings, "data": checksum, "numerics": NUMERICS}
  ours = journal.runs_of(workdir) == {run_name(described)}
  try:
    before = layout.read_config(workdir)
  except layout.DamagedFile as error:
    if not ours:
      raise layout.DamagedFile(
        error.field,
        f"{error.problem}, and no checkpoint there is of these settings",
        "repeat the command of the run, restore the file from a copy, or choose"
        " another `workdir`",
      ) from error
    return None
  if before:
    _compare(workdir, before, settings, checksum)
    return before
  if not ours:
    check_free(workdir)
  return None


def check_free(workdir: Path) -> None:
  """Refuses a directory that is not empty."""
  if workdir.exists() and (
    not workdir.is_dir() or {*workdir.iterdir()} - leftovers(workdir)
  ):
    raise UserError(
      "workdir",
      f"`workdir={workdir}` exists and is not a run of this program",
      "choose an empty or new directory",
    )


def leftovers(workdir: Path) -> set[Path]:
  """What a kill may have left of a run: a lock, and drafts of config.json."""
  config, lock = layout.config_path(workdir), layout.lock_path(workdir)
  return {
    path
    for path in workdir.iterdir()
    if path == lock or _is_draft_of(config, path)
  }


def write(
  workdir: Path,
  settings: Mapping[str, Any],
  checksum: int,
  described: Mapping[str, Any],
) -> None:
  """Writes `config.json`; the arguments are those of `claimed`."""
  layout.write_config(
    workdir,
    {
      "command": command(),
      "settings": settings,
      **described,
      "data": checksum,
      "numerics": NUMERICS,
      "environment": environment(),
    },
  )


def _compare(workdir, claimed, settings, checksum):
  """Refuses a directory in which other numbers are made."""
  before, usual = claimed.get("settings", {}), _defaults(claimed)
  value = lambda of, name: of.get(name, usual.get(name))
  changes = ", ".join(
    f"{name} ({value(before, name)} there, {value(settings, name)} now)"
    for name in sorted(before.keys() | settings.keys())
    if value(before, name) != value(settings, name) and name not in _PLACES
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


def _defaults(claimed):
  """Values of settings that config.json lacks, for they did not exist then."""
  if "preset" in claimed.get("settings", {}):  # Of a command.
    from mnemonics_jax.settings.settings import defaults

    return json.loads(json.dumps(defaults(), default=lambda _: None))
  try:
    return flat(identity(restore(claimed.get("config"))))
  except (
    LookupError,
    TypeError,
    ValueError,
  ):  # Of another program, or damaged.
    return {}


def flat(described: Any, name: str = "") -> dict[str, Any]:
  """An identity as one flat dict: `train.epochs`, `method`, `method.top`..."""
  if not isinstance(described, dict):
    return {name: described}
  found = {name: described["class"]} if name else {}
  for field, part in described["fields"].items():
    found |= flat(part, f"{name}.{field}" if name else field)
  return found


def _is_draft_of(path, other):
  # Earlier versions named drafts by their process alone.
  name = re.escape(path.name)
  draft = rf"{name}\.[0-9]+(-[0-9a-f]{{8}})?\.draft"
  return re.fullmatch(draft, other.name) is not None


# Locks.


class BusyError(UserError):
  """Another process works in the directory."""


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
  path = place.with_name(f".{place.name}.mnemonics_jax.lock")
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
  if path.is_symlink() or (path.exists() and not path.is_file()):
    raise _not_ours(path, workdir)
  with contextlib.ExitStack() as stack:
    try:
      file = stack.enter_context(files.locked(path))
    except BlockingIOError as error:
      raise BusyError(
        "workdir",
        f"`workdir={workdir}` is in use by {error.strerror}",
        "wait for it or choose another one",
      ) from None
    file.seek(0)
    if not re.fullmatch(r"(process \d+ on .*\n?)?", file.read(1000)):
      raise _not_ours(path, workdir)
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}\n")
    file.flush()
    yield file


def _not_ours(path, workdir):
  return UserError(
    "workdir",
    f"`workdir={workdir}` cannot be locked: {path} is not a lock of this program",
    f"move {path.name} away, or choose another directory",
  )
