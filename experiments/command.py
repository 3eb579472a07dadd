"""How a command begins and ends: a user's mistake is one sentence, not a trace."""

from collections.abc import Callable, Sequence
import contextlib
import errno
import logging
import os
import re
import signal
import sys

from absl import app, flags

from experiments import help as help_lib
from mnemonics_jax.errors import DISK_TROUBLE, UserError, remedy
from mnemonics_jax.report import WorkdirError
from mnemonics_jax.runs.signals import Stopped

FLAGS = flags.FLAGS


def run(
  main: Callable[[Sequence[str]], None],
  *,
  arguments: bool = False,
  preset_values: help_lib.PresetValues | None = None,
) -> None:
  """Runs `main` as a command; a user's mistake is one sentence and exit 2.

  Args:
    main: called with the command line that is left after the flags.
    arguments: whether `main` takes arguments that are not flags.
    preset_values: what a preset says beside flags that are given, for its help.
  """

  _open_closed_streams()

  def parse(argv):
    if help_lib.asked(argv[1:]):
      _help(argv, preset_values)
    try:
      rest = FLAGS(argv)
    except (flags.Error, ValueError) as error:
      _refuse(_explain(error))
    for name in FLAGS:
      if FLAGS[name].present and FLAGS[name].value == "":
        _refuse(f"--{name} is empty; give it a value or leave it out.")
    return rest

  def guarded(argv):
    # They tell what they found and where they write; nobody asked. absl, the
    # voice of the checkpoints, is set to tell by app.run.
    for library in ("absl", "jax", "matplotlib", "openTSNE"):
      logging.getLogger(library).setLevel(logging.WARNING)
    try:
      if len(argv) > 1 and not arguments:
        raise UserError(
          argv[1], f"{argv[1]!r} is not a flag", "flags look like --phases=5"
        )
      main(argv)
    except _MISTAKES as error:
      _refuse(in_flags(str(error)))
    except Stopped as stopped:
      print(stopped, file=sys.stderr)
      sys.exit(stopped.code)
    except KeyboardInterrupt as interrupt:
      print("\nStopped.", file=sys.stderr)
      sys.exit(exit_code(interrupt))
    except OSError as error:
      _end_for(error)

  # Where no run listens, such as in the middle of its report.
  before = signal.signal(signal.SIGTERM, _terminate)
  try:
    app.run(guarded, flags_parser=parse)
  finally:
    signal.signal(signal.SIGTERM, before)


class _Terminated(KeyboardInterrupt):
  """Ctrl-C, from a program."""


def _terminate(*_):
  raise _Terminated


def _open_closed_streams():
  """Leads streams that the caller has closed to nowhere.

  Otherwise the next file that is opened gets their number, and what libraries
  print is written into it.
  """
  for number, name in enumerate(("stdin", "stdout", "stderr")):
    try:
      os.fstat(number)
    except OSError:
      os.open(os.devnull, os.O_RDWR)  # Takes the least number that is free.
    if getattr(sys, name) is None:  # As Python has found it.
      mode = "w" if number else "r"
      setattr(sys, name, os.fdopen(number, mode, closefd=False))


def check_flags(module: str, others: str) -> None:
  """Refuses flags that were given but are not this command's.

  Args:
    module: `__name__` of the command.
    others: where these settings come from instead, for the message.
  """
  own = {
    flag.name for flag in FLAGS.get_key_flags_for_module(sys.modules[module])
  }
  for name in sorted(set(FLAGS) - own):
    home = str(FLAGS.find_module_defining_flag(name))
    if FLAGS[name].present and home.startswith("experiments"):
      raise UserError(
        name, f"`{name}` has no effect here", f"leave it out: {others}"
      )


def _help(argv, preset_values):
  """Prints the help of this command and ends it."""
  rest = [one for one in argv if not help_lib.asked([one])]
  with contextlib.suppress(flags.Error, ValueError):
    FLAGS(rest, known_only=True)  # Presets depend on them.
  FLAGS.mark_as_parsed()
  main = sys.modules["__main__"]
  shown = FLAGS.get_key_flags_for_module(sys.argv[0])
  try:
    print(
      help_lib.text(main.__doc__ or "", shown, preset_values),
      end="",
      flush=True,
    )
  except OSError as error:
    _end_for(error)
  sys.exit(0)


def _end_for(error: OSError):
  """Ends because of what the system says; what is a bug goes on."""
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


_MISTAKES = (UserError, WorkdirError)
_MISTAKE, _INTERRUPTED, _BROKEN_PIPE, _TERMINATED = 2, 130, 141, 143


# Settings of the library whose flag has another name.
_FLAG_OF = {
  "data_dir": "data",
  "every": "checkpoint_every",
  "network": "net",
}


def in_flags(message: str) -> str:
  """The message as the command line says it: `memory=total:5` is a flag there.

  What stands in backticks and is no flag stays as it is.
  """
  return re.sub(r"`([a-z_]+)(=[^`]*)?`", _as_flag, message)


def _as_flag(found: re.Match[str]) -> str:
  name, value = found[1], found[2] or ""
  other = _FLAG_OF.get(name, name)
  # Where there is a flag of either name, the one that was given is meant.
  if other in FLAGS and (name not in FLAGS or FLAGS[other].present):
    name = other
  return f"--{name}{value}" if name in FLAGS else found[0]


def exit_code(error: BaseException) -> int:
  """How a command ends that this error has reached."""
  if isinstance(error, _MISTAKES):
    return _MISTAKE
  if isinstance(error, _Terminated):
    return _TERMINATED
  return _INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _explain(error):
  """absl's complaint with the remedy for this kind of flag."""
  found = re.match(r"flag --(\w+)=(.*?): ", str(error), re.DOTALL)
  if found is None:
    text = re.sub(r"Did you mean: (.*?) \?", r"Did you mean \1?", str(error))
    return f"{text} --help lists all flags."
  name, value = found.groups()
  choices = getattr(FLAGS[name].parser, "enum_values", ())
  remedy = {
    "bool": f"write --{name} or --no{name}",
    "int": "give a whole number",
    "float": "give a number",
  }.get(FLAGS[name].flag_type(), f"choose one of {', '.join(choices)}")
  return f"--{name}={value} cannot be used; {remedy}."


def _refuse(message):
  print(f"error: {message}", file=sys.stderr)
  sys.exit(_MISTAKE)
