"""A compiler that is made up, for what builds and what chooses."""

from pathlib import Path

import pytest

# A compiler that is fast, and says in a file how often it was asked to build.
COMPILER = """#!/bin/sh
for word; do last=$before; before=$word; done
case "$*" in
  *-dM*) echo "#define __VERSION__ \\"$VERSION\\"";;
  *) echo built >> {log}; {does}; echo library > "$before";;
esac
"""


class Compiler:
  """A made-up compiler that CXX names.

  Args:
    folder: where it is.
  """

  def __init__(self, folder: Path):
    self.path, self._log = folder / "compiler", folder / "log"
    self.does("true")

  def does(self, command: str) -> None:
    """What it does before it writes the library."""
    text = COMPILER.format(log=self._log, does=command)
    self.path.write_text(text)
    self.path.chmod(0o755)

  @property
  def builds(self) -> int:
    """How often it has built."""
    return len(self._log.read_text().split()) if self._log.exists() else 0


@pytest.fixture
def compiler(tmp_path, monkeypatch):
  monkeypatch.setenv("VERSION", "1")
  made = Compiler(tmp_path)
  monkeypatch.setenv("CXX", str(made.path))
  return made
