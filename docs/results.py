"""Writes the tables of measured.md from the JSON files below results/.

  python docs/results.py       # after a table in results/ has changed

A table stands between two comments. The first names its file, its columns and, after
a bar, its rows:

  <!-- table studies/bytes: head nme last | raw jpeg_90=JPEGs -->
  <!-- end -->

Columns are `head` and `nme` (average accuracy), `last` (of the head), `forgetting`,
`phases` (the head after each phase) and `minutes`. `head-raw` is the paired difference
to the row `raw`, and so is every column of a row `jpeg_90-raw`. A label follows `=`;
`_` there is a blank. `n=10` before the bar takes the cells of ten phases. Without a
bar all measured rows of the plan are shown.
"""

from collections.abc import Sequence
import json
from pathlib import Path
import re
from typing import Any

import yaml

from mnemonics_jax.protocol import confidence_interval

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs/measured.md"
_TABLE = re.compile(
  r"(<!-- table (\S+): ([^|>]+?)(?:\| ([^>]+?))? -->\n).*?(<!-- end -->)", re.S
)
_WORDS = {"last": "last phase, head", "forgetting": "forgetting, head"}


def written(text: str) -> str:
  """The page with every table made anew."""
  return _TABLE.sub(
    lambda found: f"{found[1]}\n{table(*found.group(2, 3, 4))}\n\n{found[5]}",
    text,
  )


def table(name: str, columns: str, rows: str | None) -> str:
  """A Markdown table of results/NAME.json.

  Args:
    name: path below results/ without its ending.
    columns: names of columns with blanks between them, and perhaps n=PHASES.
    rows: names of rows with blanks between them; None for all measured ones.
  """
  asked = re.search(r"\bn=(\d+)", columns)
  cells, labels = _measured(name, int(asked[1]) if asked else None)
  wanted = [column for column in columns.split() if not column.startswith("n=")]
  example = next(iter(next(iter(cells.values())).values()))
  lines = [["", *(head for c in wanted for head in _heads(c, example, labels))]]
  for row in rows.split() if rows else [row for row in labels if row in cells]:
    pair, _, label = row.partition("=")
    own, _, reference = pair.partition("-")
    line = [label.replace("_", " ") or labels[own]]
    for column in wanted:
      quantity, _, other = column.partition("-")
      line += _numbers(cells, quantity, own, other or reference)
    lines.append(line)
  top, *below = (f"| {' | '.join(line)} |" for line in lines)
  rule = f"|---{'|---:' * (len(lines[0]) - 1)}|"
  return "\n".join([top, rule, *below]).replace("|  |", "| |")


def _measured(name: str, phases: int | None) -> tuple[Any, dict[str, str]]:
  """Finished cells as {row: {seed: cell}}, and the labels of rows in order."""
  record = json.loads((ROOT / f"results/{name}.json").read_text())
  plan = ROOT / f"results/{name}.yaml"
  known = yaml.safe_load(plan.read_text())["rows"] if plan.exists() else {}
  phases = phases or max(cell["phases"] for cell in record["cells"].values())
  found: dict[str, dict[int, Any]] = {}
  for cell in record["cells"].values():
    if cell["status"] == "finished" and cell["phases"] == phases:
      found.setdefault(cell["row"], {})[cell["seed"]] = cell
  labels = {
    row: (about or {}).get("label", row) for row, about in known.items()
  }
  return found, labels or {row: row for row in found}


def _heads(column: str, example: Any, labels: dict[str, str]) -> list[str]:
  if column == "phases":
    return [f"{count} classes" for count in example["classes_seen"]]
  quantity, minus, other = column.partition("-")
  word = _WORDS.get(quantity, quantity)
  return [f"{word} − {labels[other]}" if minus else word]


def _numbers(cells: Any, quantity: str, row: str, reference: str) -> list[str]:
  """The mean over seeds with its interval, of a row or of its paired difference."""
  if row == reference:
    return [""]
  series = []
  for seed, cell in sorted(cells[row].items()):
    values = _values(cell, quantity)
    if reference:
      if seed not in cells[reference]:
        continue
      others = _values(cells[reference][seed], quantity)
      values = [own - other for own, other in zip(values, others, strict=True)]
    series.append(values)
  return [
    _text(one, signed=bool(reference), digits=0 if quantity == "minutes" else 2)
    for one in zip(*series, strict=True)
  ]


def _values(cell: Any, quantity: str) -> list[float]:
  match quantity:
    case "head" | "nme":
      return [100 * cell["average"]["final"][quantity]]
    case "last":
      return [100 * cell["accuracy"]["final"]["head"][-1]]
    case "phases":
      return [100 * value for value in cell["accuracy"]["final"]["head"]]
    case "forgetting":
      return [100 * cell["forgetting"]["head"]]
    case "minutes":
      return [cell["seconds"] / 60]
  raise ValueError(f"there is no column {quantity}")


def _text(values: Sequence[float], signed: bool, digits: int) -> str:
  mean, half = confidence_interval(list(values))
  text = f"{mean:{'+' if signed else ''}.{digits}f}".replace("-", "−")
  clear = signed and half is not None and abs(mean) > half
  text += f" ± {half:.{digits}f}" if half is not None and digits else ""
  return f"**{text}**" if clear else text


if __name__ == "__main__":
  PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
