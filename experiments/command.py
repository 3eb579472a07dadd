"""How a command begins and ends: a mistake of the user is one sentence, no trace."""

from collections.abc import Iterator, Mapping
import contextlib
import errno
import faulthandler
import logging
import os
import signal
import sys
import threading

from absl.flags import FlagValues

from experiments import flags as flags_lib
from mnemonics_jax.errors import DISK_TROUBLE, UserError, remedy
from mnemonics_jax.report import WorkdirError
from mnemonics_jax.runs.signals import Stopped

_MISTAKES = (UserError, WorkdirError)
_MISTAKE, _INTERRUPTED, _BROKEN_PIPE, _TERMINATED = 2, 130, 141, 143


@contextlib.contextmanager
def session(
  doc: str | None,
  flags: FlagValues,
  *,
  arguments: bool = False,
  presets_of: str | None = None,
  instead: Mapping[str, str] | None = None,
) -> Iterator[list[str]]:
  """Parses the flags of a command, and ends it with a sentence and an exit code.

  Args:
    doc: what the command says of itself.
    flags: of the command; they get what the command line says.
    arguments: whether the command takes arguments that are not flags. It gets them.
    presets_of: the data set whose presets `--help` shows.
    instead: what to do instead of giving a flag that only other commands have.
  """
  _open_closed_streams()
  with contextlib.suppress(OSError, ValueError):  # Where stderr is no file.
    faulthandler.enable()
  # These libraries log what they find and where they write.
  for library in ("absl", "jax", "matplotlib", "openTSNE"):
    logging.getLogger(library).setLevel(logging.WARNING)
  with _terminable():
    try:
      if flags_lib.asks_for_help(sys.argv[1:]):
        text = flags_lib.help_text(doc or "", flags, sys.argv, presets_of)
        print(text, end="", flush=True)
        sys.exit(0)
      rest = flags_lib.parse(flags, sys.argv, instead)
      if rest and not arguments:
        raise UserError(
          rest[0], f"{rest[0]!r} is not a flag", "flags look like --phases=5"
        )
      yield rest
      sys.stdout.flush()
    except _MISTAKES as error:
      _refuse(flags_lib.in_flags(str(error), flags))
    except Stopped as stopped:
      print(stopped, file=sys.stderr)
      sys.exit(stopped.code)
    except KeyboardInterrupt as interrupt:
      print("\nStopped.", file=sys.stderr)
      sys.exit(exit_code(interrupt))
    except OSError as error:
      _end_for(error)


class _Terminated(KeyboardInterrupt):
  """SIGTERM, which other programs send."""


@contextlib.contextmanager
def _terminable():
  """Ends the command at SIGTERM, and never loses that or Ctrl-C.

  A run handles both signals itself, to save its state first.
  """
  hook = sys.unraisablehook

  def terminate(*_):
    raise _Terminated

  def again(dropped):
    """Repeats a signal whose exception Python drops, such as in a destructor."""
    if not isinstance(dropped.exc_value, KeyboardInterrupt):
      return hook(dropped)
    ended = isinstance(dropped.exc_value, _Terminated)
    number = signal.SIGTERM if ended else signal.SIGINT
    # Once the destructor has returned.
    where = threading.main_thread().ident, number
    threading.Timer(0.01, signal.pthread_kill, where).start()

  before = signal.signal(signal.SIGTERM, terminate)
  sys.unraisablehook = again
  try:
    yield
  finally:
    sys.unraisablehook = hook
    signal.signal(signal.SIGTERM, before)


def _open_closed_streams():
  """Opens streams that the caller has closed, and throws away what is printed.

  Otherwise the next file gets their number, and libraries print into that file.
  """
  for number, name in enumerate(("stdin", "stdout", "stderr")):
    try:
      os.fstat(number)
    except OSError:
      os.open(os.devnull, os.O_RDWR)  # Takes the least number that is free.
    if getattr(sys, name) is None:  # As Python has found it.
      mode = "w" if number else "r"
      setattr(sys, name, os.fdopen(number, mode, closefd=False))


def _end_for(error: OSError):
  """Ends the command for trouble with a pipe or disk; raises what is a bug."""
  if error.errno not in (errno.EPIPE, *DISK_TROUBLE):
    raise error
  if error.filename is None:  # What is not printed yet: Python would complain.
    with contextlib.suppress(OSError):
      nowhere = os.open(os.devnull, os.O_WRONLY)
      os.dup2(nowhere, sys.stdout.fileno())
  if error.errno == errno.EPIPE:  # Nobody reads on, as with `| head`.
    sys.exit(_BROKEN_PIPE)
  _refuse(
    f"{error.filename or 'A file'} cannot be written ({error.strerror})."
    f" What is saved is safe; {remedy(error)} and repeat the command to"
    " continue."
  )


def exit_code(error: BaseException) -> int:
  """The exit code of a command that ends with this error."""
  if isinstance(error, _MISTAKES):
    return _MISTAKE
  if isinstance(error, _Terminated):
    return _TERMINATED
  return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _refuse(message):
  print(f"error: {message}", file=sys.stderr)
  sys.exit(_MISTAKE)
