"""Attacks runs at random and sees whether they end as if nothing had happened.

  make torture MINUTES=60
  PYTHONPATH=tests python -m torture.run --minutes=5 --seed=1
  PYTHONPATH=tests python -m torture.run --schedule='{"run": ..., "attacks": ...}'

Runs of digits, which take seconds, are killed, asked to stop, left without room,
damaged, moved and continued on another number of devices, and compared with ones
that were left alone. Ends with counts, and with code 1 and a schedule as small as it
could be made if a promise was not kept.
"""

import argparse
from collections import Counter
from collections.abc import Callable
import contextlib
import json
from pathlib import Path
import random
import shutil
import subprocess
import sys
import tempfile
import time

from support.interrupted import leaves
from torture import schedules
from torture.schedules import KINDS, Run, Schedule
from torture.victim import Failed, Victim

from mnemonics_jax.runs import artifact

_ROOM = 64  # Megabytes of the file system that is filled.
_NEAR = 0.2  # Accuracies of so few images, on another number of devices.


class References:
  """The files of runs without an attack; each run is made once."""

  def __init__(self, home: Path, caches: Path):
    self._home, self._caches, self._known = home, caches, {}

  def __call__(self, run: Run) -> dict[str, object]:
    key = (*run.flags, run.processes)
    if key not in self._known:
      home = self._home / f"reference_{len(self._known)}"
      # Whether images are streamed changes no number.
      quiet = Run(**{**vars(run), "stream": "never"})
      victim = Victim(quiet, home, self._caches, small=False)
      victim.finish()
      self._known[key] = left(victim.workdir)
      shutil.rmtree(home)
    return self._known[key]


def left(workdir: Path) -> dict[str, object]:
  """What a run leaves that must not depend on attacks."""
  found: dict[str, object] = {
    "results.json": json.loads((workdir / "results.json").read_bytes())
  }
  found["metrics.jsonl"] = sorted(_epochs(workdir / "metrics.jsonl"))
  for path in sorted(workdir.glob("seed_*/*.npz")):
    found[str(path.relative_to(workdir))] = path.read_bytes()
  for path in sorted(workdir.glob("seed_*/checkpoints/phase_??")):
    name = str(path.relative_to(workdir))
    try:
      found[name] = leaves(artifact.restore(path)[0])
    except artifact.Damaged:
      found[name] = None
  return found


def _epochs(log):
  for line in log.read_bytes().splitlines() if log.exists() else []:
    with contextlib.suppress(ValueError, TypeError, KeyError):
      record = json.loads(line)
      if record["kind"] == "epoch":
        yield tuple(record[k] for k in ("seed", "phase", "stage", "epoch"))


def compare(victim: Victim, expected: dict[str, object]) -> None:
  """Raises `Failed` where a run differs from one that was left alone."""
  found = left(victim.workdir)
  if not victim.exact:
    rows = [
      [run["average"][name] for run in one["results.json"]["runs"]]
      for one in (found, expected)
      for name in ("head", "nme")
    ]
    for mine, theirs in zip(rows[:2], rows[2:], strict=True):
      if any(abs(a - b) > _NEAR for a, b in zip(mine, theirs, strict=True)):
        raise Failed(f"Accuracies are {mine}, not near {theirs}")
    found = {"metrics.jsonl": found["metrics.jsonl"]}
  for name in found if not victim.exact else expected:
    harmed = any(path.startswith(name) for path in victim.harmed)
    if found.get(name) != expected[name] and not harmed:
      raise Failed(f"{name} differs")


def play(
  schedule: Schedule,
  home: Path,
  caches: Path,
  references: References,
  small: bool,
  count: Callable[[str, str], None] = lambda *_: None,
) -> None:
  """A schedule from its beginning to the comparison."""
  shutil.rmtree(home, ignore_errors=True)
  victim = Victim(schedule.run, home, caches, small)
  expected = references(schedule.run)
  for attack in schedule.attacks:
    refused = victim.refused
    victim.suffer(attack)
    count(attack.kind, "refused" if victim.refused > refused else "survived")
  victim.finish()
  compare(victim, expected)
  shutil.rmtree(home)


def smallest(schedule: Schedule, fails: Callable[[Schedule], bool]) -> Schedule:
  """A schedule from which no attack can be taken without it passing."""
  number = 0
  while number < len(schedule.attacks):
    fewer = schedule.without(number)
    if fails(fewer):
      schedule = fewer
    else:
      number += 1
  return schedule


@contextlib.contextmanager
def playground():
  """Where runs are attacked: a small file system, if one may be made."""
  with tempfile.TemporaryDirectory(prefix="torture_") as folder:
    home = Path(folder)
    (home / "disk").mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM}m", "tmpfs"]
    mounted = not subprocess.run(
      [*mount, str(home / "disk")], capture_output=True
    ).returncode
    try:
      yield home, mounted
    finally:
      if mounted:
        subprocess.run(["umount", str(home / "disk")], check=True)


def main(argv: list[str] | None = None) -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--minutes", type=float, default=60)
  parser.add_argument("--seed", type=int, default=time.time_ns() % 10**6)
  parser.add_argument("--schedule", help="only this one, again")
  options = parser.parse_args(argv)
  print(f"seed {options.seed}", flush=True)
  rng, counts, runs = random.Random(options.seed), Counter(), Counter()
  until = time.monotonic() + 60 * options.minutes
  with playground() as (home, small):
    references = References(home, home / "caches")
    room = f"a file system of {_ROOM} MB" if small else "a limit of file sizes"
    print(f"full disks are {room}", flush=True)
    attempt = lambda schedule, **more: play(
      schedule,
      home / "disk" / "run",
      home / "caches",
      references,
      small,
      **more,
    )
    while time.monotonic() < until:
      schedule = (
        schedules.read(options.schedule)
        if options.schedule
        else schedules.draw(rng)
      )
      try:
        attempt(schedule, count=lambda *what: counts.update([what]))
      except Failed as error:
        print(f"FAILED: {schedule.write()}\n{error}", flush=True)
        _reproduce(schedule, attempt)
        print(_table(counts, runs))
        return 1
      runs.update(_labels(schedule.run))
      print(f"passed: {schedule.write()}", flush=True)
      if options.schedule:
        break
  print(_table(counts, runs))
  return 0


def _reproduce(schedule, attempt):
  def fails(candidate):
    try:
      attempt(candidate)
    except Failed:
      return True
    return False

  found = smallest(schedule, fails)
  print(
    "The smallest schedule that fails; moments are not exactly the same twice:\n"
    f"PYTHONPATH=tests {sys.executable} -m torture.run --schedule='{found.write()}'"
  )


def _labels(run):
  yield "runs"
  yield run.method
  yield f"{run.exemplars} exemplars"
  yield "streamed" if run.stream == "always" else "resident"
  yield "two processes" if run.processes == 2 else "one process"
  if run.seeds > 1:
    yield "two seeds"
  if run.adjust:
    yield "adjusted"


def _table(counts, runs):
  """Markdown: what was done how often, and to what."""
  rows = ["| attack | times | refused in a sentence |", "|---|---|---|"]
  for kind in KINDS:
    times = counts[kind, "survived"] + counts[kind, "refused"]
    rows.append(f"| {kind} | {times} | {counts[kind, 'refused']} |")
  rows += ["", "| of | runs |", "|---|---|"]
  rows += [f"| {name} | {number} |" for name, number in runs.most_common()]
  return "\n".join(rows)


if __name__ == "__main__":
  sys.exit(main())
