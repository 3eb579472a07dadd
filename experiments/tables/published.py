"""The numbers that the paper prints, and where it contradicts itself."""

import functools
import importlib.resources
from typing import Any


def columns(dataset: str) -> tuple[int, ...]:
  """Every N of which the paper has numbers for a data set."""
  found = _published()
  tables = [found[name] for name in found if name.startswith("table_")]
  rows = [row for table in tables for row in table["avg_acc"].values()]
  return tuple(found["columns_N"]) if any(dataset in r for r in rows) else ()


def number(
  table: str, quantity: str, row: str | None, dataset: str, phases: int
) -> float | None:
  """`avg_acc` or `forgetting` of a cell as a fraction, None if not printed.

  Args:
    table: which of the paper's.
    quantity: one of the two.
    row: its name in `paper_tables.yaml`; the paper does not have row None.
    dataset: name of the data set.
    phases: N.
  """
  found = _published()
  if row is None or phases not in found["columns_N"]:
    return None
  numbers = found[f"table_{table}"][quantity][row].get(dataset)
  return numbers and numbers[found["columns_N"].index(phases)] / 100


def contradiction(
  table: str, quantity: str, row: str | None, dataset: str, phases: int
) -> dict[str, float]:
  """What each table prints for the run of a cell; empty where all agree."""
  for same in _published()["same_runs"]:
    if row is not None and same.get(f"table_{table}") == row:
      others = ((name.removeprefix("table_"), of) for name, of in same.items())
      numbers = {
        other: number(other, quantity, of, dataset, phases)
        for other, of in others
      }
      found = {name: n for name, n in numbers.items() if n is not None}
      return found if len(set(found.values())) > 1 else {}
  return {}


@functools.cache
def _published() -> dict[str, Any]:
  import yaml

  path = importlib.resources.files("experiments") / "paper_tables.yaml"
  return yaml.safe_load(path.read_text(encoding="utf-8"))
