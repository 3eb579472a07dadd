"""Where and with what a run is computed, for whoever wants to repeat it."""

import datetime
import importlib.metadata
import os
from pathlib import Path
import platform
import shlex
import subprocess
import sys
from typing import Any

import jax

from mnemonics_jax.parallel import mesh
from mnemonics_jax.runs import convolutions

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
# Those that may change last digits.
_NUMERICAL = ("mnemonics_jax", "jax", "jaxlib", "flax", "optax")


def environment() -> dict[str, Any]:
  """Versions, commit, machine and devices of this process."""
  used = jax.devices()[: mesh.device_count()]
  now = datetime.datetime.now(datetime.UTC)
  return {
    "python": platform.python_version(),
    "packages": {name: _version(name) for name in _PACKAGES},
    "git_commit": _commit(),
    "machine": f"{platform.system()} {platform.machine()}",
    "devices": [device.device_kind for device in used],
    convolutions.FIELD: convolutions.used(),
    "processes": jax.process_count(),
    "cores": os.cpu_count(),
    "created": now.isoformat(timespec="seconds"),
  }


def changes_since(began: dict[str, Any]) -> str | None:
  """A sentence if a run goes on with other packages, devices or kernels.

  Args:
    began: the environment it began in.
  """
  now = environment()
  packages, before = now["packages"], began.get("packages", {})
  changes = [
    f"{name} is now {packages[name]}, was {before[name]}"
    for name in _NUMERICAL
    if name in before and before[name] != packages[name]
  ]
  if began.get("devices", now["devices"]) != now["devices"]:
    changes.append("it runs on other devices")
  if change := convolutions.change_since(began):
    changes.append(change)
  if not changes:
    return None
  return f"since this run began, {', '.join(changes)}: last digits may differ."


def command() -> str:
  """The command line of this process, as it can be typed again."""
  spec = getattr(sys.modules["__main__"], "__spec__", None)
  if spec is None:  # A script.
    return shlex.join(["python", *sys.argv])
  name = spec.name.removesuffix(".__main__")
  return shlex.join(["python", "-m", name, *sys.argv[1:]])


def _commit():
  try:
    return subprocess.run(
      ["git", "describe", "--always", "--dirty", "--abbrev=40"],
      cwd=Path(__file__).parent,
      capture_output=True,
      text=True,
      check=True,
    ).stdout.strip()
  except (OSError, subprocess.CalledProcessError):
    return None


def _version(name):
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None
