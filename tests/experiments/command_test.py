"""How a command ends, and how it shows what the library says."""

import errno
import os
import signal
import sys

from absl import flags
from absl.testing import flagsaver
import pytest

from experiments import command, folder  # noqa: F401 (its flags)
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs.signals import Stopped

SHOWN = {
  "`memory` is missing": "--memory is missing",
  "use `memory=total:5`.": "use --memory=total:5.",
  '`workdir=/my runs/it\'s "new"` is': '--workdir=/my runs/it\'s "new" is',
  "`workdir=a=b=c`, `fresh`": "--workdir=a=b=c, --fresh",
  "`workdir=two\nlines`": "--workdir=two\nlines",
  "`phases=`": "--phases=",
  "`data_dir=/x` has": "--data_dir=/x has",
  # What is no flag stays as it is.
  "`inner_lr` and `inner_lr=3`": "`inner_lr` and `inner_lr=3`",
  "`memory policy` and memory=3": "`memory policy` and memory=3",
  "`Memory`, ``, `=3`, `memory": "`Memory`, ``, `=3`, `memory",
}


@pytest.mark.parametrize("message", SHOWN)
def test_settings_are_shown_as_flags(message):
  assert command.in_flags(message) == SHOWN[message]


def test_the_directory_of_a_folder_is_the_flag_that_was_given():
  with flagsaver.flagsaver():
    flags.FLAGS(["folder", "--data=/my images"])
    shown = command.in_flags("`data_dir=/my images` has no train/")
  assert shown == "--data=/my images has no train/"


def test_fields_that_are_not_flags_are_translated_to_flags():
  for field, flag in command._FLAG_OF.items():
    assert flag in flags.FLAGS, field


def _raise(error):
  def main(_):
    raise error

  return main


def _run(monkeypatch, main, *arguments, **options):
  monkeypatch.setattr(sys, "argv", ["command", *arguments])
  with flagsaver.flagsaver(), pytest.raises(SystemExit) as stop:
    command.run(main, **options)
  return stop.value.code


ENDS = {
  "mistake": (UserError("phases", "`phases=0` is none", "use 1"), 2),
  "interrupted": (KeyboardInterrupt(), 130),
  "full disk": (OSError(errno.ENOSPC, "No space left on device", "f.json"), 2),
  "terminated": (Stopped(143), 143),
}


@pytest.mark.parametrize("name", ENDS)
def test_every_end_has_its_code_and_no_trace(monkeypatch, capsys, name):
  error, code = ENDS[name]
  assert _run(monkeypatch, _raise(error)) == code
  told = capsys.readouterr().err
  assert "Traceback" not in told
  parts = {
    "mistake": "error: --phases=0 is none; use 1.\n",
    "interrupted": "Stopped.",
    "full disk": "f.json cannot be written (No space left on device)",
    "terminated": "Stopped and saved.",
  }
  assert parts[name] in told


def test_a_program_may_end_a_command_where_no_run_listens(monkeypatch, capsys):
  before = signal.getsignal(signal.SIGTERM)
  ask = lambda _: os.kill(os.getpid(), signal.SIGTERM)
  assert _run(monkeypatch, ask) == 143
  assert capsys.readouterr().err == "\nStopped.\n"
  assert signal.getsignal(signal.SIGTERM) is before


def test_a_bug_is_no_mistake_of_the_user(monkeypatch):
  monkeypatch.setattr(sys, "argv", ["command"])
  with flagsaver.flagsaver(), pytest.raises(ZeroDivisionError):
    command.run(_raise(ZeroDivisionError()))


def test_arguments_are_refused_where_none_are_taken(monkeypatch, capsys):
  assert _run(monkeypatch, _raise(AssertionError()), "run") == 2
  assert "'run' is not a flag" in capsys.readouterr().err
  heard = []
  assert not _run(monkeypatch, heard.append, "run", arguments=True)
  assert heard == [["command", "run"]]


def test_exit_codes_of_processes_that_fail_together():
  error = UserError("devices", "none", "add one")
  assert command.exit_code(error) == 2
  assert command.exit_code(KeyboardInterrupt()) == 130
  assert command.exit_code(ValueError()) == 1
