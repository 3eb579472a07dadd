"""What prints, opens files or logs stays in the rooms for it."""

from pathlib import Path
import re

ROOT = Path(__file__).parents[1]
ROOMS = ("data", "report", "runs")


def test_the_mathematics_prints_opens_and_logs_nothing():
  library = ROOT / "mnemonics_jax"
  pure = [
    path
    for path in library.rglob("*.py")
    if path.relative_to(library).parts[0] not in ROOMS
  ]
  assert len(pure) > 30
  for path in pure:
    lines = path.read_text().splitlines()
    code = "\n".join(line for line in lines if ">>>" not in line)
    found = re.search(r"\b(print\(|(?<!Image\.)open\(|logging\b)", code)
    assert not found, f"{found} in {path}"
