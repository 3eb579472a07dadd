"""Experiments as commands, called in this process: no start-up to wait for."""

import contextlib
import io
import os
from pathlib import Path
import runpy
import sys
from typing import NamedTuple
from unittest import mock
import warnings

from absl.flags import FlagValues

from experiments import flags as flags_lib
from experiments.__main__ import main


class Outcome(NamedTuple):
  """How a command ended.

  Attributes:
    code: exit code.
    out: what it printed.
    err: what it complained about.
    files: what is there now and was not before, below the directory it ran in.
  """

  code: int | str | None
  out: str
  err: str
  files: list[str]


class Accepted(BaseException):
  """The command had nothing to object and was about to train."""


def call(
  name: str,
  *arguments: str,
  cwd: Path,
  train: bool = False,
  script: bool = False,
) -> Outcome:
  """Runs `python -m experiments.NAME` in `cwd`, up to the first training.

  Args:
    name: of the experiment.
    *arguments: after it.
    cwd: where it runs.
    train: whether it may go on.
    script: whether to run `mnemonics-jax NAME` instead.

  Raises:
    Accepted: instead of training.
  """
  before = _files(cwd)
  home = {"HOME": str(cwd), "XDG_CACHE_HOME": str(cwd / "cache")}
  out, err = io.StringIO(), io.StringIO()
  refuse = mock.Mock(side_effect=Accepted)
  code = 0
  with (
    contextlib.chdir(cwd),
    mock.patch.dict(os.environ, home),
    mock.patch.object(sys, "argv", [name, *arguments]),
    contextlib.ExitStack() as stack,
    contextlib.redirect_stdout(out),
    contextlib.redirect_stderr(err),
  ):
    os.environ.pop("MNEMONICS_DATA_DIR", None)
    for step in () if train else ("begin_run", "run_phase"):
      stack.enter_context(mock.patch(f"mnemonics_jax.phase.{step}", refuse))
    # Tests import what commands have, too.
    stack.enter_context(warnings.catch_warnings())
    warnings.filterwarnings("ignore", ".* found in sys.modules after import")
    try:
      if script:
        sys.argv[:] = ["mnemonics-jax", name, *arguments]
        main()
      else:
        module = f"experiments.{name}"
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as stop:
      code = stop.code
  files = sorted(str(path.relative_to(cwd)) for path in _files(cwd) - before)
  return Outcome(code, out.getvalue(), err.getvalue(), files)


def parsed(values: FlagValues, **flags: str) -> FlagValues:
  """The flags of a command that was given these."""
  given = [f"--{name}={value}" for name, value in flags.items()]
  flags_lib.parse(values, ["command", *given])
  return values


def assert_refused(outcome: Outcome, *parts: str) -> None:
  """One sentence with `parts`, exit code 2, and nothing left behind."""
  assert outcome.code == 2, outcome
  assert outcome.err.startswith("error: ") and outcome.err.endswith("\n")
  assert "Traceback" not in outcome.err
  for part in parts:
    assert part in outcome.err
  # Caches may stay: of decoded images, and, hidden, of libraries.
  written = [f for f in outcome.files if not f.startswith(("cache", "."))]
  assert not written, written


def _files(directory):
  return set(directory.rglob("*"))
