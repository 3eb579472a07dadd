"""Where a run computes: on how many devices, in how many processes.

Processes of one run execute the same command. The first one prints and writes;
the others work in copies of its directories, which end with them.
"""

import atexit
from collections.abc import Iterator
import contextlib
import importlib.util
import os
from pathlib import Path
import re
import shutil
import sys
import tempfile

from absl import flags

from experiments import command, compile_cache
from experiments.settings import UserError
from experiments.stopping import Stopped
from mnemonics_jax.data import Share

FLAGS = flags.FLAGS

_copies: list[str] = []  # Directories of this process alone.

flags.DEFINE_string(
  "devices",
  "all",
  "Devices that share every batch: all, or a number of them. On a CPU, which is"
  " one device, that many of its cores become devices, and training is faster.",
)
flags.DEFINE_string(
  "coordinator",
  None,
  "For a run over several machines: host:port of the first process, or auto on"
  " Slurm. TPU pods need none of these. Every process gets the same command.",
)
flags.DEFINE_integer(
  "process_id",
  None,
  "Number of this process from 0, if not --coordinator=auto.",
)
flags.DEFINE_integer(
  "num_processes", None, "Number of processes, if not --coordinator=auto."
)


@contextlib.contextmanager
def computing() -> Iterator[None]:
  """Computes on what the flags say; processes but the first are silent."""
  count = _count()
  distributed = _connect()
  # Imported here so that a mistake in the flags is answered at once.
  import jax

  from mnemonics_jax import devices

  if count is not None:
    _make_cores_devices(count)
  there = jax.device_count()
  if count is not None and count > there:
    raise UserError(
      f"--devices={count} is more than the {there} of this machine"
      f" ({jax.default_backend()}); leave it out to use all."
    )
  if count is not None and jax.process_count() > 1:
    raise _useless(count)
  with contextlib.ExitStack() as stack:
    if jax.process_index():
      nowhere = stack.enter_context(open(os.devnull, "w"))
      stack.enter_context(contextlib.redirect_stdout(nowhere))
      stack.enter_context(contextlib.redirect_stderr(nowhere))
    stack.enter_context(compile_cache.kept())
    stack.enter_context(devices.use(count))
    try:
      yield
    except Stopped:  # All processes have agreed on it.
      raise
    except (Exception, KeyboardInterrupt) as error:
      if jax.process_count() > 1:
        atexit.register(_leave, command.exit_code(error))
      raise
  if distributed:
    jax.distributed.shutdown()


def _leave(code: int) -> None:
  """Ends now: the others may wait for this process, which would wait for them.

  What they wait for then fails, and they end, too.
  """
  for folder in _copies:
    shutil.rmtree(folder, ignore_errors=True)
  sys.stdout.flush()
  sys.stderr.flush()
  os._exit(code)


def share() -> Share:
  """What this process reads of a data set."""
  import jax

  from mnemonics_jax import devices

  return Share(jax.process_index(), jax.process_count(), devices.collect)


def own(path: Path) -> Path:
  """A directory that only this process writes: `path` itself, or a copy."""
  import jax
  from jax.experimental import multihost_utils

  if jax.process_count() == 1:
    return path
  mine = path
  if jax.process_index():
    folder = tempfile.mkdtemp()
    _copies.append(folder)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    mine = Path(folder) / path.name
    if path.exists():
      shutil.copytree(path, mine)
  multihost_utils.sync_global_devices(f"copied {path}")
  return mine


def _count() -> int | None:
  """--devices as a number; None is all of them."""
  value = FLAGS.devices
  if value == "all":
    return None
  if not re.fullmatch(r"[0-9]+", value) or int(value) < 1:
    raise UserError(
      f"--devices={value} is neither all nor a whole number from 1."
    )
  if FLAGS.coordinator is not None:
    raise _useless(value)
  return int(value)


def _make_cores_devices(count: int) -> None:
  """Lets a CPU be as many devices, but no more than it has cores."""
  import jax

  chosen = "host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
  if chosen or jax.config.jax_num_cpu_devices >= 0:
    return
  affinity = getattr(os, "sched_getaffinity", None)  # Only on Linux.
  cores = len(affinity(0)) if affinity else os.cpu_count() or 1
  with contextlib.suppress(RuntimeError):  # JAX has started: it is too late.
    jax.config.update("jax_num_cpu_devices", min(count, cores))


def _useless(count) -> UserError:
  return UserError(
    f"--devices={count} has no effect in several processes, each of which"
    " brings all its devices; leave it out."
  )


def _connect() -> bool:
  """Joins the other processes, if there may be some; whether it did."""
  address, rank, size = FLAGS.coordinator, FLAGS.process_id, FLAGS.num_processes
  given = {"process_id": rank, "num_processes": size}
  if address in (None, "auto"):
    for name, value in given.items():
      if value is not None:
        raise UserError(
          f"--{name}={value} has no effect without --coordinator=host:port."
        )
    if address is None and not _has_tpu():
      return False
  elif not re.fullmatch(r"[^\s:]+:[0-9]{1,5}", address):
    raise UserError(
      f"--coordinator={address} is neither auto nor host:port; write"
      " --coordinator=localhost:9876."
    )
  elif rank is None or size is None or not 0 <= rank < size:
    raise UserError(
      f"--coordinator={address} needs --num_processes=N and in each process"
      " another --process_id, from 0 to N-1."
    )
  import jax

  try:
    if address in (None, "auto"):
      jax.distributed.initialize()
    else:
      jax.distributed.initialize(address, size, rank)
  except Exception as error:  # Whatever the search for a cluster runs into.
    if address is None and jax.process_count() == 1:
      return False
    flag = "--coordinator" + (f"={address}" if address else "")
    raise UserError(
      f"{flag}: the processes did not find each other ({error})."
    ) from error
  return True


def _has_tpu(dev: Path = Path("/dev")) -> bool:
  """Whether this machine has TPUs; JAX then knows if it is part of a pod."""
  wanted = os.environ.get("JAX_PLATFORMS") or "tpu"
  chips = [*dev.glob("accel*"), *dev.glob("vfio/[0-9]*")]
  installed = importlib.util.find_spec("libtpu") is not None
  return "tpu" in wanted and bool(chips) and installed
