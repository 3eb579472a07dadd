"""Tables that are asked for by flags, and filled with made-up runs."""

from collections.abc import Container
import json
from pathlib import Path
from typing import Any

from support import command, report_fixture

from experiments.tables.request import (
  Request,
  define_flags,
  request_from_flags,
)

# Average accuracy of a made-up run is 80 % minus 2 points per seed, plus this.
OFFSETS = {"herding": (0.0, 0.0, 0.0), "mnemonics": (0.01, 0.02, 0.03)}


def asked(**flags: str) -> Request:
  """What a command with just these flags asks for."""
  return request_from_flags(command.parsed(define_flags(), **flags))


def request(root: Path, **flags: str) -> Request:
  """What a command asks for Table 2 of digits, or with these flags."""
  given = {"table": "2", "dataset": "digits", "root": str(root), **flags}
  return asked(**given)


DATA = 17
"""Checksum of what made-up runs have learned."""


def make_up(
  request: Request, seeds: Container[int] | None = None, data: int = DATA
) -> None:
  """Writes the runs of a table's cells, of all seeds or of some."""
  for row, phases, seed in request.cells():
    if seeds is None or seed in seeds:
      settings = request.settings(row, phases, seed)
      report_fixture.write(
        request.workdir(row, phases, seed, data),
        seeds=(seed,),
        exemplars=settings.exemplars,
        offset=OFFSETS[row.name][seed],
      )


def written(request: Request) -> tuple[dict[str, Any], str, str]:
  """The table's JSON, Markdown and HTML."""
  folder = request.root / "tables"
  read = lambda suffix: (folder / f"{request.name}{suffix}").read_text("utf-8")
  return json.loads(read(".json")), read(".md"), read(".html")
