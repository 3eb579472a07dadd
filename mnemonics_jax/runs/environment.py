"""On which machine and with which code, packages and kernels a run is computed."""

from collections.abc import Mapping
import datetime
import functools
import importlib.metadata
from pathlib import Path
import platform
import shlex
import subprocess
import sys
from typing import Any
import zlib

import jax

from mnemonics_jax import cpu_conv
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import mesh, processes

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
    **_commit(),
    "machine": _machine(),
    "devices": [device.device_kind for device in used],
    KERNELS: kernels(),
    "processes": jax.process_count(),
    "cores": mesh.cores(),
    "created": now.isoformat(timespec="seconds"),
  }


def changes_since(began: dict[str, Any]) -> str | None:
  """A sentence if a run goes on with other code, packages, devices, cores or
  kernels.

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
  commits = began.get("git_commit"), now["git_commit"]
  if None not in commits and len(set(commits)) > 1:
    changes.append(f"the code is now {code(now)}, was {code(began)}")
  if began.get("devices", now["devices"]) != now["devices"]:
    changes.append("it runs on other devices")
  on_cpu = "cpu" in now["devices"]
  if on_cpu and began.get("cores", now["cores"]) != now["cores"]:
    # They share out sums.
    changes.append(f"cores are now {now['cores']}, were {began['cores']}")
  if change := kernels_changed(began):
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


def code(environment: Mapping[str, Any]) -> str:
  """The code that an environment tells of, in words.

  >>> code({"git_commit": "0123abc", "git_dirty": True})
  'commit 0123abc with uncommitted changes'
  >>> code({"git_commit": None, "packages": {"mnemonics_jax": "0.1.0"}})
  'version 0.1.0'

  Args:
    environment: as `environment` has written it.
  """
  commit = environment.get("git_commit")
  if commit is None:
    version = environment.get("packages", {}).get("mnemonics_jax")
    return f"version {version or 'unknown'}"
  dirty = " with uncommitted changes" if environment.get("git_dirty") else ""
  return f"commit {commit}{dirty}"


@functools.cache  # Of the code that was loaded, whatever is checked out later.
def _commit() -> dict[str, Any]:
  """The commit, and whether the code differs from it; None without one."""
  package = Path(__file__).parents[1]

  def git(*arguments):
    done = subprocess.run(
      ["git", *arguments],
      cwd=package,
      capture_output=True,
      text=True,
      check=True,
    )
    return done.stdout.strip()

  try:
    # Installed below somebody else's repository it is not part of that.
    git("ls-files", "--error-unmatch", "package.py")
    commit = git("rev-parse", "HEAD")
    changes = git("status", "--porcelain", "--", ".", "../experiments")
  except (OSError, subprocess.CalledProcessError):
    return {"git_commit": None, "git_dirty": None}
  return {"git_commit": commit, "git_dirty": bool(changes)}


def _machine():
  """System and processor, on which durations depend."""
  name = f"{platform.system()} {platform.machine()}"
  try:
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
  except OSError:  # Not on Linux.
    lines = [f"model name: {platform.processor()}"]
  models = {x.partition(":")[2].strip() for x in lines if "model name" in x}
  return ", ".join([name, *sorted(models - {"", platform.machine()})])


def _version(name):
  try:
    return importlib.metadata.version(name)
  except importlib.metadata.PackageNotFoundError:
    return None


# Kernels.


KERNELS = "convolutions"


def kernels() -> str:
  """The kernels of this process: `xla`, or `native-` and the name of their build."""
  if jax.default_backend() != "cpu":
    return "xla"
  return cpu_conv.choose().name


def kernel_news() -> str | None:
  """Why the process uses these kernels, once; None if that is as usual."""
  return cpu_conv.news() if jax.default_backend() == "cpu" else None


def kernels_changed(info: dict[str, Any]) -> str | None:
  """A phrase if this process uses other kernels than those in `info`.

  Args:
    info: of a checkpoint, or an environment.
  """
  before, now = info.get(KERNELS), kernels()
  if before in (None, now):
    return None
  return f"convolutions are now {now}, were {before}"


def check_processes() -> None:
  """Refuses processes of one run whose copies of the model would drift apart."""
  if not processes.all_equal(zlib.crc32(kernels().encode()) >> 1):
    raise UserError(
      cpu_conv.VARIABLE,
      "the processes would compute convolutions in different ways",
      f"set {cpu_conv.VARIABLE}=xla on all machines",
    )
