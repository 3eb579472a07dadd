"""The cells of a table: what a run leaves in it, and sets of them.

A cell is a JSON object of one run with one seed. A table file holds all cells
that any command has added to it, so everything can be drawn from that file.
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
from typing import Any

from experiments.tables.plan import Plan, Row
from mnemonics_jax import protocol
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report import Run
from mnemonics_jax.runs.environment import code

MOMENTS = {"trained": "before", "final": "after"}  # ... the fine-tune.

Cell = Mapping[str, Any]
Estimate = tuple[float, float | None]  # Mean and half-width of its interval.


def pending(row: Row, phases: int, seed: int, workdir: str) -> dict[str, Any]:
  """A cell that has not run yet."""
  return {
    "row": row.name,
    "phases": phases,
    "seed": seed,
    "workdir": workdir,
    "status": "pending",
  }


def finished(cell: Cell, done: Run) -> dict[str, Any]:
  """The cell with the numbers of a finished run."""
  results = done.results
  (run,) = results["runs"]
  phases = run["phases"]
  accuracy = {
    moment: {
      name: [p["moments"][moment][name]["all"] for p in phases]
      for name in run["average"]
    }
    for moment in MOMENTS
  }
  return {
    **cell,
    "status": "finished",
    "code": code(done.config.get("environment", {})),
    "readout": results["readout"],
    "seconds": sum(done.durations),
    "memory_bytes": phases[-1]["memory"]["bytes"],
    "memory_images": phases[-1]["memory"]["images"],
    "classes_seen": [p["classes_seen"] for p in phases],
    "accuracy": accuracy,
    "average": {
      moment: {
        name: protocol.average_accuracy(values)
        for name, values in by_readout.items()
      }
      for moment, by_readout in accuracy.items()
    },
    "forgetting": dict(run["forgetting"]),
  }


def failed(cell: Cell, reason: str) -> dict[str, Any]:
  """The cell with the reason why its run did not end."""
  return {**cell, "status": "failed", "reason": reason}


def key(cell: Cell) -> str:
  return f"{cell['row']}/n{cell['phases']}/seed_{cell['seed']}"


@dataclasses.dataclass(frozen=True)
class Sheet:
  """A table as far as it has been filled.

  Attributes:
    plan: the table.
    cells: in any order; `departures` are the settings that differ from those
      of the paper in the same row.
  """

  plan: Plan
  cells: Sequence[Cell]

  @property
  def phases(self) -> list[int]:
    return sorted({cell["phases"] for cell in self.cells})

  @property
  def readouts(self) -> list[str]:
    """The read-outs that all finished cells have measured."""
    measured = [
      {*cell["average"]["final"]}
      for cell in self.cells
      if cell["status"] == "finished"
    ]
    return [n for n in READOUTS if all(n in names for names in measured)]

  @property
  def shown(self) -> list[Row]:
    """Rows of which there are cells."""
    names = {cell["row"] for cell in self.cells}
    return [row for row in self.plan.rows if row.name in names]

  def of(self, row: str, phases: int, status: str = "finished") -> list[Cell]:
    """The cells of a row and N, by seed."""
    found = [
      cell
      for cell in self.cells
      if (cell["row"], cell["phases"], cell["status"]) == (row, phases, status)
    ]
    return sorted(found, key=lambda cell: cell["seed"])

  def paired(
    self, row: Row, reference: str, phases: int
  ) -> list[tuple[Cell, Cell]]:
    """Cells of a row, each with that of another row of the same seed."""
    references = {cell["seed"]: cell for cell in self.of(reference, phases)}
    return [
      (cell, references[cell["seed"]])
      for cell in self.of(row.name, phases)
      if cell["seed"] in references
    ]


def schedule(cell: Cell) -> str:
  """`paper` if it may be compared with the published number beside it."""
  return "reduced" if cell["departures"] else "paper"


def average(
  cell: Cell, readout: str | None = None, moment: str = "final"
) -> float:
  """Average accuracy of a read-out, by default the reported one."""
  return cell["average"][moment][readout or cell["readout"]]


def accuracies(cell: Cell, readout: str | None = None) -> list[float]:
  """Accuracy of a read-out after each phase, by default the reported one."""
  return cell["accuracy"]["final"][readout or cell["readout"]]


def forgetting(cell: Cell) -> float:
  """Forgetting of the reported read-out."""
  return cell["forgetting"][cell["readout"]]


def estimate(values: Iterable[float]) -> Estimate:
  return protocol.confidence_interval(list(values))
