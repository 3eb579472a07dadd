"""Breaks the code line by line and sees whether the tests notice.

  make mutants
  PYTHONPATH=tests python -m mutants.run --only=phase/ --sample=20 --seed=1

Works on a copy of what git tracks, one break and one process at a time; it takes
an hour. Ends with the breaks that no test has noticed, and with code 1 if they are
more than one in twenty.
"""

import argparse
from collections.abc import Sequence
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

ROOT = Path(__file__).parents[2]
_GOAL = 0.95
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
    "JAX_COMPILATION_CACHE_DIR": str(tree.parent / "programs"),
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
  options = parser.parse_args()
  chosen = [b for b in breaks() if options.only in b.file]
  chosen = sample(chosen, options.sample, options.seed)[options.start - 1 :]
  survivors, sound = [], set()
  with tempfile.TemporaryDirectory() as directory:
    tree = Path(directory) / "tree"
    copy_tree(tree)
    for number, broken in enumerate(chosen, 1):
      for name in {*broken.tests} - sound:
        # What fails anyway would notice everything.
        if not passes(tree, [name]):
          raise SystemExit(f"{name} already fails without a break.")
        sound.add(name)
      killed, seconds = try_break(tree, broken)
      if not killed:
        survivors.append(broken)
      word = "killed" if killed else "SURVIVED"
      place = f"{number}/{len(chosen)}"
      print(f"{place:7} {word:8} {seconds:4.0f} s  {broken}", flush=True)
  dead = len(chosen) - len(survivors)
  print(f"\n{dead} of {len(chosen)} killed ({dead / len(chosen):.0%})")
  for broken in survivors:
    print(f"  survived: {broken}")
  return 0 if dead >= _GOAL * len(chosen) else 1


if __name__ == "__main__":
  sys.exit(main())
