"""The work directory: claimed by one configuration, written atomically."""

from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import hashlib
import importlib.metadata
import json
import os
from pathlib import Path
import platform
import shlex
import subprocess
import sys
from typing import Any

from experiments.settings import Settings, UserError
from mnemonics_jax import files

try:
  import fcntl
except ImportError:  # Windows has no such locks.
  fcntl = None

_PACKAGES = [
  "mnemonics_jax",
  "jax",
  "jaxlib",
  "flax",
  "optax",
  "chex",
  "orbax-checkpoint",
  "tensorflow-datasets",
  "absl-py",
  "numpy",
]


def default(settings: Settings, root: str = "runs") -> Path:
  """A directory of its own for these settings, the same every time."""
  digest = hashlib.sha256(json.dumps(_plain(settings)).encode()).hexdigest()
  memory = settings.memory.replace(":", "-")
  parts = [settings.dataset, settings.method, settings.exemplars, memory]
  return Path(root) / "_".join([*parts, f"n{settings.phases}", digest[:8]])


def fresh(workdir: Path) -> Path:
  """`workdir`, or the first of `workdir-2`, `workdir-3`... that is not there."""
  candidate, number = workdir, 2
  while candidate.exists():
    candidate, number = Path(f"{workdir}-{number}"), number + 1
  return candidate


def claim(workdir: Path, settings: Settings, data: int) -> str | None:
  """Makes `workdir` this configuration's own, or refuses.

  An existing directory is only entered if it is empty or holds a
  `config.json` with the same settings; nothing in another one is touched.

  Args:
    workdir: the directory.
    settings: the configuration.
    data: a checksum of the data it is run on.

  Returns:
    What else has changed since the run began, if it matters, for a person.
  """
  path = workdir / "config.json"
  if path.exists():
    claimed = read_json(path)
    theirs, ours = claimed.get("settings", {}), _plain(settings)
    if not isinstance(theirs, dict):
      raise UserError(
        f"--workdir: {path} is damaged (its settings are {theirs!r}); add"
        " --fresh to start over in a new directory."
      )
    changes = ", ".join(
      f"{name} ({theirs.get(name)} there, {ours.get(name)} now)"
      for name in sorted(theirs.keys() | ours.keys())
      if theirs.get(name) != ours.get(name)
      and name != "data"  # The same data may lie elsewhere now.
    )
    if changes:
      raise UserError(
        f"--workdir={workdir} belongs to a run with other settings: {changes}."
        " Choose another --workdir or add --fresh."
      )
    if claimed.get("data", data) != data:
      raise UserError(
        f"--workdir={workdir} belongs to a run on other data, though of the same"
        " name. Choose another --workdir or add --fresh."
      )
    return _moved(claimed.get("environment", {}))
  try:
    # A kill may have left a draft of config.json.
    if workdir.exists() and (
      not workdir.is_dir()
      or not all(_is_draft_of(path, other) for other in workdir.iterdir())
    ):
      raise UserError(
        f"--workdir={workdir} exists and is not a run of this program; choose"
        " an empty or new directory."
      )
    workdir.mkdir(parents=True, exist_ok=True)
    write_json(
      path,
      {
        "command": shlex.join(["python", "-m", *_command()]),
        "settings": _plain(settings),
        "data": data,
        "environment": _environment(),
      },
    )
  except OSError as error:
    raise UserError(
      f"--workdir={workdir} cannot be used ({error}); choose another one."
    ) from error
  return None


def _is_draft_of(path, other):
  return files.is_draft(other) and other.name.startswith(f"{path.name}.")


def _moved(began):
  """A sentence if a run goes on with other packages or other devices."""
  now = _environment()
  packages, there = now["packages"], began.get("packages", {})
  changes = [
    f"{name} is now {packages[name]}, was {there[name]}"
    for name in ("mnemonics_jax", "jax", "jaxlib", "flax", "optax")
    if name in there and there[name] != packages[name]
  ]
  if began.get("devices", now["devices"]) != now["devices"]:
    changes.append("it runs on other devices")
  if not changes:
    return None
  return f"since this run began, {', '.join(changes)}: last digits may differ."


class BusyError(UserError):
  """Another process works in the directory."""


@contextlib.contextmanager
def locked(workdir: Path) -> Iterator[None]:
  """Keeps other processes out of `workdir`; a dead one's lock counts nothing."""
  # The system releases the lock with the process, however that ends.
  with (workdir / "lock").open("a+") as file:
    if fcntl is not None:
      try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
      except BlockingIOError:
        file.seek(0)
        raise BusyError(
          f"--workdir={workdir} is in use by {file.read().strip()}; wait for it"
          " or choose another one."
        ) from None
      except OSError:
        pass  # A file system without locks.
    file.truncate(0)
    file.write(f"process {os.getpid()} on {platform.node()}\n")
    file.flush()
    for draft in filter(files.is_draft, workdir.rglob("*.draft")):
      with contextlib.suppress(OSError):  # Somebody else was faster.
        draft.unlink()
    yield


def read_json(path: Path) -> dict[str, Any]:
  """The object in a file that a run has written."""
  try:
    value = json.loads(path.read_bytes())
    if not isinstance(value, dict):
      raise ValueError("it is not a JSON object")
  except (OSError, ValueError) as error:
    raise UserError(
      f"--workdir: {path} is damaged ({error}); add --fresh to start over in a"
      " new directory."
    ) from error
  return value


def write_json(path: Path, value: Any) -> None:
  files.write_text(path, json.dumps(value, indent=1) + "\n")


# Settings that earlier versions did not have, with what they did.
_NEWER = {"dtype": "float32", "exemplar_chunk": None}


def _plain(settings):
  """What decides a run's numbers, as JSON would give it back.

  Runs of earlier versions keep their names: newer settings only appear when
  they differ from what was done before.
  """
  values = json.loads(json.dumps(dataclasses.asdict(settings)))
  del values["remat"]  # It changes what is stored, not what is computed.
  return {
    name: value
    for name, value in values.items()
    if name not in _NEWER or value != _NEWER[name]
  }


def _command():
  main = sys.modules["__main__"]
  spec = getattr(main, "__spec__", None)
  return [spec.name if spec else sys.argv[0], *sys.argv[1:]]


def _environment():
  try:
    commit = subprocess.run(
      ["git", "describe", "--always", "--dirty", "--abbrev=40"],
      cwd=Path(__file__).parent,
      capture_output=True,
      text=True,
      check=True,
    ).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    commit = None
  import jax

  from mnemonics_jax import devices

  used = jax.devices()[: devices.count()]
  return {
    "python": platform.python_version(),
    "packages": {name: _version(name) for name in _PACKAGES},
    "git_commit": commit,
    "machine": f"{platform.system()} {platform.machine()}",
    "devices": [device.device_kind for device in used],
    "processes": jax.process_count(),
    "cores": os.cpu_count(),
    "created": datetime.datetime.now(datetime.UTC).isoformat(
      timespec="seconds"
    ),
  }


def _version(name):
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None
