"""Every public name can be found, and its docstring has an example."""

import doctest
import importlib
import inspect
from pathlib import Path
import pkgutil
import subprocess
import sys

import pytest

import mnemonics_jax
from mnemonics_jax import nn

ROOT = Path(__file__).parents[1]
ROOMS = (
  *("bilevel", "data", "learner", "memory"),
  *("methods", "phase", "report", "runs"),
)
# Public is what they define, by names without an underscore.
FILES = (
  *("errors", "losses", "progress", "protocol", "registry", "types"),
  *(f"nn.{module.name}" for module in pkgutil.iter_modules(nn.__path__)),
)


def public(module_name):
  """Functions and classes of this project that a module offers, by name."""
  module = importlib.import_module(module_name)
  names = getattr(module, "__all__", None)
  homes = "mnemonics_jax"
  if names is None:
    names = [name for name in vars(module) if not name.startswith("_")]
    homes = module_name
  found = {name: getattr(module, name) for name in names}
  return {
    name: value
    for name, value in found.items()
    if (inspect.isclass(value) or callable(value))
    and getattr(value, "__module__", "").startswith(homes)
  }


def examples(value):
  """Those in its own docstring that are not skipped."""
  found = doctest.DocTestParser().get_examples(value.__doc__ or "")
  return [one for one in found if not one.options.get(doctest.SKIP)]


@pytest.mark.parametrize("name", ["", *ROOMS, *FILES])
def test_every_public_name_has_an_example(name):
  values = public(f"mnemonics_jax.{name}".rstrip("."))
  assert values
  lacking = [
    f"{value.__module__}.{name}"
    for name, value in values.items()
    if not examples(value)
  ]
  assert not lacking, f"no example in the docstring of {', '.join(lacking)}"


def test_names_without_an_example_are_found():
  def documented():
    """Says something."""

  def skipped():
    """Says something.

    >>> skipped()  # doctest: +SKIP
    """

  def shown():
    """Says something.

    >>> 1 + 1
    2
    """

  assert [bool(examples(f)) for f in (documented, skipped, shown)] == [
    False, False, True,
  ]  # fmt: skip


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
