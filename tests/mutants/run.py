"""Breaks the code line by line and sees whether the tests notice.

  make mutants
  PYTHONPATH=tests python -m mutants.run --only=phase/ --sample=20 --seed=1

The breaks are those of `breaks.py`, which people wrote, and those of `generate.py`.
Works on a copy of what git tracks, one break and one process at a time; it takes
hours. `survivors.json` lists breaks that no test noticed earlier. Ends with code 1
if others survive: a change of tests must not let them. `--record` adds them to the
file, and removes those that tests notice now.
"""

import argparse
from collections.abc import Sequence
import json
import os
from pathlib import Path
import random
import shutil
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from mutants.breaks import Break, breaks
from mutants.generate import generated

ROOT = Path(__file__).parents[2]
LEDGER = Path(__file__).with_name("survivors.json")
_SECONDS = 900  # A break may also make the code run forever.
_NO_FAILURE, _NO_TESTS = 0, 5


class Outcome(NamedTuple):
  """What became of a break.

  Attributes:
    killed: whether a test has noticed.
    seconds: that took.
  """

  killed: bool
  seconds: float


def applied(text: str, broken: Break) -> str:
  """The text of a file with the break in it."""
  return text.replace(broken.old, broken.new)


def sample(found: Sequence[Break], size: int | None, seed: int) -> list[Break]:
  """`size` of the breaks at random, in their order; None takes all."""
  if size is None or size >= len(found):
    return list(found)
  chosen = random.Random(seed).sample(range(len(found)), size)
  return [found[index] for index in sorted(chosen)]


def copy_tree(to: Path) -> None:
  """What git tracks, as it is now."""
  listed = subprocess.run(
    ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT, check=True, capture_output=True, text=True,
  )  # fmt: skip
  for name in filter(None, listed.stdout.split("\0")):
    if (ROOT / name).is_file():
      (to / name).parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(ROOT / name, to / name)


def passes(tree: Path, tests: Sequence[str]) -> bool:
  """Whether tests pass in a tree; stops at the first that does not."""
  environment = os.environ | {
    "PYTHONPATH": str(tree),
    # Compiled files are told apart by seconds, which is too coarse here.
    "PYTHONDONTWRITEBYTECODE": "1",
    # Most programs are those of the unbroken code.
    "JAX_COMPILATION_CACHE_DIR": os.environ.get(
      "JAX_COMPILATION_CACHE_DIR", str(tree.parent / "programs")
    ),
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
  }
  command = [
    sys.executable,
    "-m",
    "pytest",
    "-x",
    "-q",
    "-p",
    "no:cacheprovider",
  ]
  try:
    done = subprocess.run(
      [*command, *(f"tests/{name}" for name in tests)],
      cwd=tree, env=environment, capture_output=True, timeout=_SECONDS,
    )  # fmt: skip
  except subprocess.TimeoutExpired:
    return False
  if done.returncode == _NO_TESTS:
    raise SystemExit(f"There are no tests in {', '.join(tests)}.")
  return done.returncode == _NO_FAILURE


def try_break(tree: Path, broken: Break) -> Outcome:
  """Applies a break to a tree, runs its tests, and takes it back."""
  path, began = tree / broken.file, time.monotonic()
  text = path.read_text(encoding="utf-8")
  path.write_text(applied(text, broken), encoding="utf-8")
  try:
    # One file after the other: most breaks are noticed by the first.
    killed = not all(passes(tree, [name]) for name in broken.tests)
  finally:
    path.write_text(text, encoding="utf-8")
  return Outcome(killed, time.monotonic() - began)


def entry(broken: Break) -> str:
  """What the ledger calls a break, wherever its line moves."""
  return f"{broken.old.strip()}  →  {broken.new.strip()}"


def record(survivors: Sequence[Break], killed: Sequence[Break]) -> None:
  """Updates the ledger by the breaks that were tried."""
  known = {*json.loads(LEDGER.read_text(encoding="utf-8"))}
  known = known - {*map(entry, killed)} | {*map(entry, survivors)}
  text = json.dumps(sorted(known), indent=1, ensure_ascii=False)
  LEDGER.write_text(f"{text}\n", encoding="utf-8")


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument(
    "--only", default="", help="breaks of files with this name"
  )
  parser.add_argument("--sample", type=int, help="so many of them, at random")
  parser.add_argument("--seed", type=int, default=0, help="of the sample")
  parser.add_argument(
    "--start", type=int, default=1, help="at the n-th of them"
  )
  parser.add_argument(
    "--kind", choices=["known", "generated"], help="only breaks of this kind"
  )
  parser.add_argument(
    "--record", action="store_true", help="update survivors.json"
  )
  options = parser.parse_args()
  found = [*breaks()] if options.kind != "generated" else []
  found += generated() if options.kind != "known" else []
  chosen = [b for b in found if options.only in b.file]
  chosen = sample(chosen, options.sample, options.seed)[options.start - 1 :]
  survivors, killed = try_all(chosen)
  print(f"\n{len(killed)} of {len(chosen)} killed")
  allowed = json.loads(LEDGER.read_text(encoding="utf-8"))
  for broken in survivors:
    word = "as before" if entry(broken) in allowed else "NEW"
    print(f"  survived, {word}: {broken}")
  if options.record:
    record(survivors, killed)
  return 0 if all(entry(b) in allowed for b in survivors) else 1


def try_all(chosen: Sequence[Break]) -> tuple[list[Break], list[Break]]:
  """Tries breaks in a copy of the tree; those that survive, and the others."""
  survivors, killed, sound = [], [], set()
  with tempfile.TemporaryDirectory() as directory:
    tree = Path(directory) / "tree"
    copy_tree(tree)
    for number, broken in enumerate(chosen, 1):
      for name in {*broken.tests} - sound:
        # What fails anyway would notice everything.
        if not passes(tree, [name]):
          raise SystemExit(f"{name} already fails without a break.")
        sound.add(name)
      outcome = try_break(tree, broken)
      (killed if outcome.killed else survivors).append(broken)
      word = "killed" if outcome.killed else "SURVIVED"
      place = f"{number}/{len(chosen)}"
      print(
        f"{place:7} {word:8} {outcome.seconds:4.0f} s  {broken}", flush=True
      )
  return survivors, killed


if __name__ == "__main__":
  sys.exit(main())
