"""Functions fit on a screen, and the map of the house is right."""

import ast
from pathlib import Path
import re
import subprocess

import pytest

ROOT = Path(__file__).parents[1]
FUNCTION_LINES = 80


def _sources():
  """All that is written here; a copy without git has the same files."""
  listed = subprocess.run(
    ["git", "ls-files", "-z", "*.py"], cwd=ROOT, capture_output=True, text=True
  )
  if listed.returncode:
    pytest.skip("git does not tell which files are ours")
  return [ROOT / name for name in listed.stdout.split("\0") if name]


def _length(node):
  return node.end_lineno - node.lineno + 1 if node else 0


def _docstring(node):
  """What a function says of itself, with examples, is not counted."""
  first = node.body[0]
  return first if ast.get_docstring(node) is not None else None


def test_a_function_fits_on_a_screen():
  found = []
  for path in _sources():
    if not path.exists():  # Deleted, and not committed yet.
      continue
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
      if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        lines = _length(node) - _length(_docstring(node))
        if lines > FUNCTION_LINES:
          found.append(f"{path}:{node.lineno} {node.name} has {lines} lines")
  assert not found, "\n".join(found)


def test_what_the_map_of_the_house_names_is_there():
  text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
  places = re.findall(r"`((?:\w+/)+\w+\.py)(?::([\w.]+))?", text)
  assert len(places) > 20
  for name, symbol in places:
    (path,) = [
      path
      for path in (ROOT / name, ROOT / "mnemonics_jax" / name)
      if path.exists()
    ] or [None]
    assert path, f"there is no {name}"
    last = symbol.rpartition(".")[2]
    defined = re.search(rf"^ *(def|class) {last}\b", path.read_text(), re.M)
    assert not symbol or defined, f"{name} has no {symbol}"
