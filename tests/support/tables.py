"""Tables that are asked for by flags, and filled with made-up runs."""

from collections.abc import Container
import json
from pathlib import Path
from typing import Any

import yaml

from experiments.tables.plan import Plan, define_flags, from_flags
from support import command, report_fixture

# Average accuracy of a made-up run is 80 % minus 2 points per seed, plus this.
OFFSETS = {"herding": (0.0, 0.0, 0.0), "mnemonics": (0.01, 0.02, 0.03)}

DATA = 17
"""Checksum of what made-up runs have learned."""

STUDY = {
  "title": "How often",
  "question": "Does it help?",
  "decision": "Four times if its interval is above zero.",
  "dataset": "digits",
  "preset": "smoke",
  "phases": [2],
  "seeds": [0, 1],
  "settings": {"exemplars": "herding"},
  "rows": {
    "once": {"settings": {"rehearsal": "once"}},
    "four": {
      "label": "four times",
      "settings": {"rehearsal": 4, "distill": False},
      "minus": ["once"],
    },
  },
}


def asked(**flags: str) -> Plan:
  """What a command with just these flags asks for."""
  return from_flags(command.parsed(define_flags(), **flags))


def table(root: Path, **flags: str) -> Plan:
  """What a command asks for Table 2 of digits, or with these flags."""
  given = {"table": "2", "dataset": "digits", "root": str(root), **flags}
  return asked(**given)


def write_study(path: Path, **changes: Any) -> Path:
  """Writes the study with changes."""
  path.write_text(yaml.safe_dump(STUDY | changes, sort_keys=False))
  return path


def study(
  folder: Path, name: str = "often", changes: Any = (), **flags: str
) -> Plan:
  """What a command with flags asks for a study with changes, which is written."""
  path = write_study(folder / f"{name}.yaml", **dict(changes))
  return asked(**{"plan": str(path), "root": str(folder / "runs"), **flags})


def make_up(
  plan: Plan, seeds: Container[int] | None = None, data: int = DATA
) -> None:
  """Writes the runs of a table's cells, of all seeds or of some."""
  for row, phases, seed in plan.cells():
    if seeds is None or seed in seeds:
      settings = plan.settings(row, phases, seed)
      report_fixture.write(
        plan.workdir(row, phases, seed, data),
        seeds=(seed,),
        exemplars=settings.exemplars,
        offset=OFFSETS[row.name][seed],
      )


def written(plan: Plan) -> tuple[dict[str, Any], str, str]:
  """The table's JSON, Markdown and HTML."""
  read = lambda suffix: plan.file(suffix).read_text("utf-8")
  return json.loads(read(".json")), read(".md"), read(".html")
