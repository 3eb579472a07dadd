"""The one exception: what it carries, and how the command line shows it."""

import ast
import copy
from pathlib import Path
import pickle
import re

from absl import flags
from absl.testing import flagsaver
import pytest

from experiments import cifar, command, folder  # noqa: F401 (their flags)
from mnemonics_jax import data
from mnemonics_jax.errors import DiskError, UserError

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("kind", [UserError, DiskError, data.DataError])
def test_it_carries_field_problem_and_fix(kind):
  error = kind("memory", "`memory=total:1` is too small", "use total:9")
  assert (error.field, error.fix) == ("memory", "use total:9")
  assert error.problem == "`memory=total:1` is too small"
  assert str(error) == "`memory=total:1` is too small; use total:9."
  assert isinstance(error, UserError) and isinstance(error, ValueError)


@pytest.mark.parametrize(
  "duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))]
)
def test_copies_say_the_same(duplicate):
  """As from one process to another."""
  error = duplicate(data.DataError("data_dir", "nothing", "look elsewhere"))
  assert type(error) is data.DataError and error.field == "data_dir"
  assert str(error) == "nothing; look elsewhere."


SHOWN = {
  "`memory` is missing": "--memory is missing",
  "use `memory=total:5`.": "use --memory=total:5.",
  '`workdir=/my runs/it\'s "new"` is': '--workdir=/my runs/it\'s "new" is',
  "`workdir=a=b=c`, `fresh`": "--workdir=a=b=c, --fresh",
  "`workdir=two\nlines`": "--workdir=two\nlines",
  "`phases=`": "--phases=",
  "the setting `network=resnet8`": "the setting --net=resnet8",
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


def _spoken(path):
  """The texts of a module that are not documentation."""
  tree = ast.parse(path.read_text())
  documentation = {
    id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)
  }
  for node in ast.walk(tree):
    if isinstance(node, ast.Constant) and id(node) not in documentation:
      yield str(node.value)


def test_the_library_does_not_know_flags():
  # One is a command itself; another asks git.
  commands = {"data/prepare.py", "runs/environment.py"}
  texts = 0
  for path in sorted((ROOT / "mnemonics_jax").rglob("*.py")):
    name = path.relative_to(ROOT / "mnemonics_jax").as_posix()
    for text in _spoken(path) if name not in commands else ():
      assert not re.search(r"(^|[\s(])--[a-z]", text), (name, text)
      texts += 1
  assert texts > 1000


def test_every_error_of_the_library_has_three_parts():
  """Field, problem and fix; a sentence is not finished twice."""
  found = 0
  for path in sorted((ROOT / "mnemonics_jax").rglob("*.py")):
    for node in ast.walk(ast.parse(path.read_text())):
      if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        continue
      if node.func.id not in ("UserError", "DiskError", "DataError"):
        continue
      found += 1
      assert len(node.args) == 3, f"{path}:{node.lineno}"
      for part in node.args[1:]:
        text = ast.unparse(part).rstrip("'\"")
        assert not text.endswith((".", ";")), f"{path}:{node.lineno}"
  assert found > 30
