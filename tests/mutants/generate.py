"""Small faults that no person chose: 400 of all that fit the library.

A fault swaps a comparison, turns a sign, moves a constant, or negates a condition.
The hash of its line decides whether it is among the 400. A fault therefore stays
chosen when its line moves, and goes only when the line changes.
"""

import ast
from collections.abc import Iterator
import hashlib
from pathlib import Path

from mutants.breaks import Break, breaks

ROOT = Path(__file__).parents[2]
COUNT = 400
_SEED = "2026"

_SWAPS: dict[type, type] = {
  ast.Lt: ast.LtE,
  ast.LtE: ast.Lt,
  ast.Gt: ast.GtE,
  ast.GtE: ast.Gt,
  ast.Eq: ast.NotEq,
  ast.NotEq: ast.Eq,
  ast.Is: ast.IsNot,
  ast.IsNot: ast.Is,
  ast.In: ast.NotIn,
  ast.NotIn: ast.In,
  ast.Add: ast.Sub,
  ast.Sub: ast.Add,
  ast.Mult: ast.Div,
  ast.Div: ast.Mult,
  ast.FloorDiv: ast.Mult,
  ast.And: ast.Or,
  ast.Or: ast.And,
}
# Messages, and what only type checkers read, make no number.
_SKIPPED = (
  ast.Raise | ast.JoinedStr | ast.arguments | ast.Import | ast.ImportFrom
)
# Rooms whose tests are not in a directory of their name.
_TESTS = {
  "identity": ("identity_test.py", "museum_test.py"),
  "memory": ("memory", "contracts/codecs_test.py"),
  "methods": ("methods", "contracts/methods_test.py"),
  "nn": ("nn", "contracts/networks_test.py"),
  "lazy": ("public_names_test.py",),
  "settings": ("contracts/settings_test.py", "experiments"),
}


def _fault(node: ast.AST) -> ast.AST | None:
  """A node with one thing wrong; None if there is nothing to get wrong."""
  match node:
    case ast.Compare(left, [operator], [right]) if type(operator) in _SWAPS:
      return ast.Compare(left, [_SWAPS[type(operator)]()], [right])
    case ast.BinOp(_, ast.Div(), ast.Constant(str())):  # A path.
      return None
    case ast.BinOp(left, operator, right) if type(operator) in _SWAPS:
      return ast.BinOp(left, _SWAPS[type(operator)](), right)
    case ast.BoolOp(operator, values):
      return ast.BoolOp(_SWAPS[type(operator)](), values)
    case ast.UnaryOp(ast.USub() | ast.Not(), operand):
      return operand
    case ast.Constant(bool() as value):
      return ast.Constant(not value)
    case ast.Constant(int() | float() as value):
      moved = value + 1 if isinstance(value, int) else 2 * value or 1.0
      return ast.Constant(moved)
    case ast.IfExp(test, body, other):
      return ast.IfExp(ast.UnaryOp(ast.Not(), test), body, other)
  return None


def _nodes(node: ast.AST) -> Iterator[ast.expr]:
  """All expressions that are computed when the code runs."""
  for name, field in ast.iter_fields(node):
    for child in field if isinstance(field, list) else [field]:
      if not isinstance(child, ast.AST) or isinstance(child, _SKIPPED):
        continue
      if name not in ("annotation", "returns"):
        if isinstance(child, ast.expr):
          yield child
        yield from _nodes(child)


def _tests(file: Path) -> tuple[str, ...]:
  """Test files that should notice, the likeliest first; then all of the room."""
  place = file.relative_to(ROOT / "mnemonics_jax").with_suffix("")
  name = file.relative_to(ROOT).as_posix()
  known = [test for b in breaks() if b.file == name for test in b.tests]
  own = _TESTS.get(place.parts[0], (f"{place}_test.py", place.parts[0]))
  found = dict.fromkeys([*known, *own])
  return tuple(test for test in found if (ROOT / "tests" / test).exists())


def _faults(file: Path) -> Iterator[Break]:
  lines = file.read_bytes().splitlines(keepends=True)
  text = b"".join(lines)
  tests = _tests(file)
  for node in _nodes(ast.parse(text)):
    fault = _fault(node)
    if fault is None or node.end_lineno is None:
      continue
    if "report" in file.parts and isinstance(node, ast.Constant):
      continue  # Sizes and colours of figures.
    first, last = node.lineno - 1, node.end_lineno
    begin = sum(map(len, lines[:first])) + node.col_offset
    end = sum(map(len, lines[: last - 1])) + (node.end_col_offset or 0)
    wrong = ast.unparse(fault).encode()
    # As many lines before as make the place the only one.
    while text.count(b"".join(lines[first:last])) > 1 and first:
      first -= 1
    start, stop = (sum(map(len, lines[:at])) for at in (first, last))
    old = text[start:stop].decode()
    new = (text[start:begin] + wrong + text[end:stop]).decode()
    yield Break(file.relative_to(ROOT).as_posix(), old, new, tests)


def _rank(fault: Break) -> str:
  changed = f"{_SEED} {fault.old.strip()} {fault.new.strip()}"
  return hashlib.sha256(changed.encode()).hexdigest()


def generated(count: int = COUNT) -> list[Break]:
  """The chosen faults, file by file; each line has at most one."""
  files = sorted((ROOT / "mnemonics_jax").rglob("*.py"))
  found = [fault for file in files for fault in _faults(file) if fault.tests]
  chosen: dict[tuple[str, str], Break] = {}
  for fault in sorted(found, key=_rank):
    if len(chosen) < count:
      chosen.setdefault((fault.file, fault.old), fault)
  return sorted(chosen.values(), key=lambda fault: (fault.file, fault.old))
