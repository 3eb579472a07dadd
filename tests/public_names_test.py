"""Public names are found without importing more than they need, and keep apart."""

import importlib
from pathlib import Path
import re
import subprocess
import sys
import typing

import jax
import pytest

import mnemonics_jax
from mnemonics_jax import errors, memory, package, progress, types

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


def test_commands_that_only_read_do_not_wait_for_jax():
  """Data, reports, settings and names come without it."""
  code = (
    "import mnemonics_jax, mnemonics_jax.data, mnemonics_jax.registry, sys\n"
    "import mnemonics_jax.report, mnemonics_jax.runs, mnemonics_jax.types\n"
    "import mnemonics_jax.progress, mnemonics_jax.settings\n"
    "dir(mnemonics_jax), mnemonics_jax.UserError, mnemonics_jax.PerClass\n"
    "mnemonics_jax.data.stream, mnemonics_jax.report.build\n"
    "print('jax' in sys.modules)"
  )
  assert in_new_process(code) == "False"


def test_names_are_found_where_they_are_defined():
  getter, names = package.attach(
    "door", {"UserError": "errors", "errors": "errors"}
  )
  assert getter("UserError") is errors.UserError
  assert getter("errors") is errors  # A name may be the module itself.
  assert names() == ["UserError", "errors"]
  with pytest.raises(AttributeError, match="'door' has no attribute 'x'"):
    getter("x")


def test_the_mathematics_prints_opens_and_logs_nothing():
  library = ROOT / "mnemonics_jax"
  rooms = ("data", "report", "runs", "files.py")  # The rooms for it.
  pure = [
    path
    for path in library.rglob("*.py")
    if path.relative_to(library).parts[0] not in rooms
  ]
  assert len(pure) > 30
  for path in pure:
    lines = path.read_text().splitlines()
    code = "\n".join(line for line in lines if ">>>" not in line)
    found = re.search(r"\b(print\(|(?<!Image\.)open\(|logging\b)", code)
    assert not found, f"{found} in {path}"


def test_every_event_can_be_ignored_and_told_apart():
  kinds = typing.get_args(progress.Event)
  defined = {
    value
    for value in vars(progress).values()
    if isinstance(value, type) and value.__module__ == progress.__name__
  }
  assert set(kinds) == defined  # None is forgotten in the union.
  for kind in kinds:
    assert progress.ignore(kind(*range(len(kind._fields)))) is None


def test_states_are_trees_of_their_arrays():
  stored = memory.empty(classes=2, image_shape=(4, 4, 3))
  state = types.PhaseState({"params": {}}, stored, jax.random.key(0), 1, 2)
  copied = jax.tree.map(lambda leaf: leaf, state)
  assert isinstance(copied, types.PhaseState)
  assert copied.memory is stored  # It stays on the host, whole.
  assert len(jax.tree.leaves(state)) == 4  # Memory, key, two numbers.
