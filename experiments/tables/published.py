"""The numbers that the paper prints, and where it contradicts itself."""

import functools
import importlib.resources
from typing import Any

from experiments.tables.rows import Row


def paper_number(
  table: str, quantity: str, row: Row, dataset: str, phases: int
) -> float | None:
  """`avg_acc` or `forgetting` of a cell as a fraction, None if not printed."""
  if row.paper is None:
    return None
  return _number(f"table_{table}", quantity, row.paper, dataset, phases)


def columns(dataset: str) -> tuple[int, ...]:
  """Every N of which the paper has numbers for a data set."""
  found = _published()
  tables = [found[name] for name in found if name.startswith("table_")]
  rows = [row for table in tables for row in table["avg_acc"].values()]
  return tuple(found["columns_N"]) if any(dataset in r for r in rows) else ()


def contradiction(
  table: str, quantity: str, row: Row, dataset: str, phases: int
) -> dict[str, float]:
  """What each table prints for the run of a cell; empty where all agree.

  Args:
    table: which of the paper's.
    quantity: `avg_acc` or `forgetting`.
    row: of that table.
    dataset: name of the data set.
    phases: N.
  """
  for same in _published()["same_runs"]:
    if row.paper is not None and same.get(f"table_{table}") == row.paper:
      numbers = {
        name.removeprefix("table_"): _number(
          name, quantity, label, dataset, phases
        )
        for name, label in same.items()
      }
      found = {name: n for name, n in numbers.items() if n is not None}
      return found if len(set(found.values())) > 1 else {}
  return {}


def _number(
  table: str, quantity: str, label: str, dataset: str, phases: int
) -> float | None:
  published = _published()
  numbers = published[table][quantity][label].get(dataset)
  if numbers is None or phases not in published["columns_N"]:
    return None
  return numbers[published["columns_N"].index(phases)] / 100


@functools.cache
def _published() -> dict[str, Any]:
  import yaml

  path = importlib.resources.files("experiments") / "paper_tables.yaml"
  return yaml.safe_load(path.read_text(encoding="utf-8"))
