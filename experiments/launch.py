"""Where a run computes: on how many devices, in how many processes."""

from collections.abc import Iterator
import contextlib
import os
import re

from absl import flags

from experiments import allocation, command, compile_cache
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs.signals import Stopped

FLAGS = flags.FLAGS

flags.DEFINE_string(
  "devices",
  "all",
  "Devices that share every batch: all, or a number of them. On a CPU that many"
  " of its cores become devices; by default it is one device, or one per core"
  " where no C++ compiler is found, which is faster there.",
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
  allocation.keep_freed_memory()  # Before threads have heaps of their own.
  # Imported here so that a mistake in the flags is answered at once.
  import jax

  from mnemonics_jax import cpu_conv
  from mnemonics_jax.parallel import mesh, processes

  distributed = processes.connect(
    FLAGS.coordinator, FLAGS.num_processes, FLAGS.process_id
  )
  if count is not None:
    mesh.split_cpu(count)
  elif not distributed and not cpu_conv.choose().is_native:
    mesh.split_cpu()  # XLA's kernel gradient keeps one thread of a device busy.
  available = jax.device_count()
  if count is not None and count > available:
    raise UserError(
      "devices",
      f"`devices={count}` is more than the {available} of this machine"
      f" ({jax.default_backend()})",
      "leave it out to use all",
    )
  if count is not None and jax.process_count() > 1:
    raise _no_effect(count)
  with contextlib.ExitStack() as stack:
    if jax.process_index():
      nowhere = stack.enter_context(open(os.devnull, "w"))
      stack.enter_context(contextlib.redirect_stdout(nowhere))
      stack.enter_context(contextlib.redirect_stderr(nowhere))
    stack.enter_context(compile_cache.kept())
    stack.enter_context(mesh.use(count))
    try:
      yield
    except Stopped:  # All processes have agreed on it.
      raise
    except (Exception, KeyboardInterrupt) as error:
      if jax.process_count() > 1:
        processes.leave_at_exit(command.exit_code(error))
      raise
  if distributed:
    jax.distributed.shutdown()


def _count() -> int | None:
  """--devices as a number; None is all of them."""
  value = FLAGS.devices
  if value == "all":
    return None
  if not re.fullmatch(r"[0-9]+", value) or int(value) < 1:
    raise UserError(
      "devices",
      f"`devices={value}` is neither all nor a whole number from 1",
      "write `devices=2`, or leave it out to use all",
    )
  if FLAGS.coordinator is not None:
    raise _no_effect(value)
  return int(value)


def _no_effect(count) -> UserError:
  return UserError(
    "devices",
    f"`devices={count}` has no effect in several processes, each of which brings"
    " all its devices",
    "leave it out",
  )
