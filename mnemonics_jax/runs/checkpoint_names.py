"""Names of a seed's checkpoints: of phases, and of parts within a phase."""

import contextlib
import json
from pathlib import Path
import re
from typing import Any

from mnemonics_jax.runs import layout


def name(phase: int, part: int | None = None) -> str:
  """Of the state after a phase, or of the n-th part within it."""
  whole = f"phase_{phase:02d}"
  return whole if part is None else f"{whole}_part_{part:03d}"


def parse(name: str) -> tuple[int, int | None] | None:
  """The phase and the part; None for what is not a checkpoint.

  >>> parse("phase_03_part_007")
  (3, 7)
  """
  found = re.fullmatch(r"phase_(\d{2,})(?:_part_(\d{3,}))?", name)
  if found is None:
    return None
  return int(found[1]), None if found[2] is None else int(found[2])


def place(run: str, seed: int, name: str) -> dict[str, Any]:
  """What a checkpoint says that it is one of.

  >>> place("ab12", 0, "phase_03_part_007")
  {'run': 'ab12', 'seed': 0, 'phase': 3, 'part': 7}
  """
  phase, part = parse(name) or (None, None)
  return {"run": run, "seed": seed, "phase": phase, "part": part}


def runs_of(workdir: layout.AnyPath) -> set[str]:
  """Names of the runs whose checkpoints these say they are; see `place`."""
  found = set()
  for manifest in Path(workdir).glob(f"seed_*/*/phase_*/{layout.MANIFEST}"):
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
      found.add(json.loads(manifest.read_bytes())["place"]["run"])
  return found


def of_phases(directory: Path) -> list[str]:
  """Names of the states after phases that are there, oldest first."""
  return [name for name, (_, part) in _sorted(directory) if part is None]


def of_parts(directory: Path, phase: int | None = None) -> list[str]:
  """Names of the parts of a phase, or of all, oldest first."""
  return [
    name
    for name, (its_phase, part) in _sorted(directory)
    if part is not None and phase in (None, its_phase)
  ]


def _sorted(directory):
  found = {path.name: parse(path.name) for path in directory.glob("*")}
  places = [(name, place) for name, place in found.items() if place is not None]
  return sorted(places, key=lambda one: (one[1][0], one[1][1] or 0))


def saved_phases(workdir: layout.AnyPath, seed: int) -> list[int]:
  """Those with a checkpoint of their end."""
  names = of_phases(layout.checkpoint_dir(workdir, seed))
  return [found[0] for found in map(parse, names) if found is not None]
