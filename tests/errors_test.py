"""The one exception: what it carries, and what the library says with it."""

import ast
import copy
from pathlib import Path
import pickle
import re

import numpy as np
import pytest

from mnemonics_jax import data
from mnemonics_jax.errors import DiskError, UserError, check_count

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


@pytest.mark.parametrize("value", [3, np.int64(7)])
def test_counts_within_their_bounds_pass(value):
  check_count("epochs", value, least=3, most=7)


@pytest.mark.parametrize("value", [2, 8, 5.0, float("nan"), "5", None])
def test_other_counts_are_refused(value):
  with pytest.raises(UserError, match="whole number, from 3 to 7") as refused:
    check_count("epochs", value, least=3, most=7)
  assert refused.value.field == "epochs"


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
  # One is a command itself, another asks git, and settings explain flags.
  commands = {"data/prepare.py", "runs/environment.py", "settings/settings.py"}
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
      if isinstance(node.args[0], ast.Starred):  # From another process.
        continue
      found += 1
      assert len(node.args) == 3, f"{path}:{node.lineno}"
      for part in node.args[1:]:
        text = ast.unparse(part).rstrip("'\"")
        assert not text.endswith((".", ";")), f"{path}:{node.lineno}"
  assert found > 30
