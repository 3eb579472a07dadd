"""Tables that are asked for by flags, and filled with made-up runs."""

from collections.abc import Container
import json
from pathlib import Path
from typing import Any

from absl.testing import flagsaver
from support import report_fixture

from experiments.tables.request import Request, request_from_flags

# Average accuracy of a made-up run is 80 % minus 2 points per seed, plus this.
OFFSETS = {"herding": (0.0, 0.0, 0.0), "mnemonics": (0.01, 0.02, 0.03)}


def request(root: Path, **flags: str) -> Request:
  """What a command with these flags asks for."""
  given = {"table": "2", "dataset": "digits", "root": str(root), **flags}
  with flagsaver.as_parsed(**given):
    return request_from_flags()


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
