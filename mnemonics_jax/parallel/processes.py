"""Several processes of one run: how they connect, and what they exchange.

All run the same program. The first one prints and writes. The others work in private
copies of its directories, which are deleted when they end.
"""

import atexit
import importlib.util
import os
from pathlib import Path
import re
import shutil
import sys
import tempfile

import jax
from jax.experimental import multihost_utils
import numpy as np

from mnemonics_jax.errors import UserError

_copies: list[str] = []  # Private directories of this process.


def all_gather(array: np.ndarray) -> np.ndarray:
  """The arrays of all processes, along a new first axis."""
  if jax.process_count() == 1:
    return array[None]
  return multihost_utils.process_allgather(array)


def all_equal(value: int) -> bool:
  """Whether all processes have this value."""
  return bool(np.ptp(all_gather(np.array(value, np.int32))) == 0)


def all_max(value: int) -> int:
  """The largest value of all processes, so that all do the same next."""
  return int(all_gather(np.array(value, np.int32)).max())


def connect(
  coordinator: str | None = None,
  num_processes: int | None = None,
  process_id: int | None = None,
) -> bool:
  """Connects to the other processes of the run; returns whether there are any.

  Args:
    coordinator: `host:port` of the first process, or `auto` where JAX finds it
      (Slurm). None looks for a TPU pod only.
    num_processes: how many there are, with `host:port`.
    process_id: number of this one, with `host:port`.
  """
  _check_address(coordinator, num_processes, process_id)
  if coordinator is None and not has_tpu():
    return False
  try:
    if coordinator in (None, "auto"):
      jax.distributed.initialize()
    else:
      jax.distributed.initialize(coordinator, num_processes, process_id)
  except Exception as error:  # The search for a cluster has many.
    if coordinator is None and jax.process_count() == 1:
      return False
    named = f"coordinator={coordinator}" if coordinator else "coordinator"
    raise UserError(
      "coordinator",
      f"`{named}`: the processes did not find each other ({error})",
      "start all of them, with an address that each can reach",
    ) from error
  return True


def _check_address(coordinator, num_processes, process_id):
  if coordinator in (None, "auto"):
    given = {"process_id": process_id, "num_processes": num_processes}
    for name, value in given.items():
      if value is not None:
        raise UserError(
          name,
          f"`{name}={value}` has no effect without `coordinator=host:port`",
          "give both or neither",
        )
  elif not re.fullmatch(r"[^\s:]+:[0-9]{1,5}", coordinator):
    raise UserError(
      "coordinator",
      f"`coordinator={coordinator}` is neither auto nor host:port",
      "write `coordinator=localhost:9876`",
    )
  elif (
    process_id is None
    or num_processes is None
    or not 0 <= process_id < num_processes
  ):
    raise UserError(
      "coordinator",
      f"`coordinator={coordinator}` does not say which processes there are",
      "give `num_processes=N` and in each process another `process_id`, from 0"
      " to N-1",
    )


def has_tpu(dev: Path = Path("/dev")) -> bool:
  """Whether this machine has TPUs, and so may be part of a pod."""
  wanted = os.environ.get("JAX_PLATFORMS") or "tpu"
  chips = [*dev.glob("accel*"), *dev.glob("vfio/[0-9]*")]
  installed = importlib.util.find_spec("libtpu") is not None
  return "tpu" in wanted and bool(chips) and installed


def is_first() -> bool:
  """Whether this process is the one that prints and writes."""
  return jax.process_index() == 0


def private_directory(path: Path) -> Path:
  """A directory that only this process writes: `path` or a copy of it."""
  if jax.process_count() == 1:
    return path
  private = path
  is_copy = any(path.is_relative_to(folder) for folder in _copies)
  if not is_first() and not is_copy:
    folder = tempfile.mkdtemp()
    _copies.append(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    private = Path(folder) / path.name
    if path.exists():
      shutil.copytree(path, private)
  multihost_utils.sync_global_devices(f"copied {path.name}")
  return private


def leave_at_exit(code: int) -> None:
  """Lets this process exit without waiting for the others.

  They may be waiting for it; then they fail, and exit too.
  """
  atexit.register(_leave, code)


def _leave(code):
  for folder in _copies:
    shutil.rmtree(folder, ignore_errors=True)
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)
