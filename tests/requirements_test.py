"""What is installed is what was looked at: pins, and the checksums of them."""

from pathlib import Path
import re

import pytest

ROOT = Path(__file__).parents[1]


def _pins(name: str) -> dict[str, str]:
  """Versions by package, of a file and of those it includes."""
  found = {}
  for line in (ROOT / name).read_text().splitlines():
    if line.startswith("-r "):
      found |= _pins(line.removeprefix("-r "))
    elif pin := re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", line):
      found[re.sub(r"[-_.]+", "-", pin[1]).lower()] = pin[2]
  return found


def test_the_lock_holds_the_pins_and_nothing_else():
  assert len(_pins("requirements.lock")) > 100
  assert _pins("requirements.lock") == _pins("requirements-dev.txt")


def test_the_tools_are_locked_with_all_that_they_need():
  wanted, locked = (
    _pins("requirements-tools.txt"),
    _pins("requirements-tools.lock"),
  )
  assert wanted.items() <= locked.items() and len(locked) > len(wanted)


@pytest.mark.parametrize(
  "name", ["requirements.lock", "requirements-tools.lock"]
)
def test_every_package_of_a_lock_has_a_checksum(name):
  entries = re.split(r"\n(?=\S)", (ROOT / name).read_text().strip())
  for entry in entries:
    assert re.match(r"\S+==\S+.*\\\n +--hash=sha256:[0-9a-f]{64}", entry), entry


def test_actions_are_named_by_commit():
  steps = re.findall(
    r"uses: (\S+)", (ROOT / ".github/workflows/ci.yml").read_text()
  )
  assert steps
  for step in steps:
    assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step), step
