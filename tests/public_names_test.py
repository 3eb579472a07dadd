"""Every public name can be found, without importing more than it needs."""

import importlib
from pathlib import Path
import subprocess
import sys

import pytest

import mnemonics_jax

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", ["", "report", "runs"])
def test_completion_offers_what_is_public(name):
  module = importlib.import_module(f"mnemonics_jax.{name}".rstrip("."))
  assert dir(module) == sorted(module.__all__)


def in_new_process(code):
  done = subprocess.run(
    [sys.executable, "-c", code],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=True,
  )
  return done.stdout.strip()


def test_rooms_need_no_import_of_their_own():
  names = [name for name in mnemonics_jax.__all__ if name != "__version__"]
  code = "import mnemonics_jax\n" + "\n".join(
    f"print(mnemonics_jax.{name}.__name__)" for name in names
  )
  printed = in_new_process(code).splitlines()
  assert [line.rpartition(".")[2] for line in printed] == names


def test_names_of_data_and_reports_come_without_jax():
  code = (
    "import mnemonics_jax, mnemonics_jax.data, mnemonics_jax.registry, sys\n"
    "import mnemonics_jax.report, mnemonics_jax.runs\n"
    "dir(mnemonics_jax), mnemonics_jax.UserError, mnemonics_jax.PerClass\n"
    "mnemonics_jax.data.stream, mnemonics_jax.report.build\n"
    "print('jax' in sys.modules)"
  )
  assert in_new_process(code) == "False"
