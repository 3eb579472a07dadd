"""From confusion counts to the numbers of result.json and results.json.

Their fields are listed in `layout.PHASE`, `SEED_RESULT` and `RESULTS`.
"""

from collections.abc import Iterable, Mapping, Sequence
import math
from typing import TYPE_CHECKING, Any

from mnemonics_jax import protocol
from mnemonics_jax.runs import layout
from mnemonics_jax.runs.layout import mismatch

if TYPE_CHECKING:  # It needs JAX, and a report only needs `summary`.
  import mnemonics_jax.types
import dataclasses
import functools
from pathlib import Path

import numpy as np

from mnemonics_jax.runs.layout import AnyPath, WorkdirError
from mnemonics_jax.runs.metrics_log import read_metrics
from mnemonics_jax.runs.phase_arrays import read_phase_arrays


def phase_record(
  result: "mnemonics_jax.types.PhaseResult", classes_per_phase: Sequence[int]
) -> dict[str, Any]:
  """One phase: accuracy of all, old and new classes for each read-out."""
  n_old = sum(classes_per_phase[: result.phase])
  final = result.confusion["final"]
  tested = int((next(iter(final.values())).sum(1) > 0).sum())

  def shares(confusion):
    return {
      "all": protocol.accuracy(confusion),
      "old": _measured(protocol.accuracy(confusion, slice(n_old))),
      "new": protocol.accuracy(confusion, slice(n_old, None)),
    }

  partly = tested < result.classes_seen
  return {
    "phase": result.phase,
    "classes_seen": result.classes_seen,
    **({"classes_tested": tested} if partly else {}),
    "accuracy": {n: protocol.accuracy(counts) for n, counts in final.items()},
    "by_group": {
      name: [
        _measured(share)
        for share in protocol.group_accuracies(counts, classes_per_phase)
      ]
      for name, counts in final.items()
    },
    "moments": {
      moment: {name: shares(counts) for name, counts in by_readout.items()}
      for moment, by_readout in result.confusion.items()
    },
    "memory": {"images": result.memory_images, "bytes": result.memory_bytes},
    "diagnostics": dict(result.diagnostics),
  }


def _measured(share):
  """None where there was nothing to test on."""
  return None if math.isnan(share) else share


def run_record(
  seed: int, phases: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
  """One seed: its phases, average accuracy and forgetting.

  Averages are over the phases in which all classes were tested, if there are any. A
  read-out that was added while the run went on is left out of them.
  """
  names = shared_readouts(phase["accuracy"] for phase in phases)
  full = [p for p in phases if "classes_tested" not in p] or phases

  def forgetting(name):
    ends = phases[0], phases[-1]
    if any("classes_tested" in phase for phase in ends):
      return None  # Other classes then than now.
    return protocol.forgetting([phase["by_group"][name][0] for phase in ends])

  return {
    "seed": seed,
    "phases": list(phases),
    "average": {
      name: protocol.average_accuracy([p["accuracy"][name] for p in full])
      for name in names
    },
    "forgetting": {name: forgetting(name) for name in names},
  }


def shared_readouts(measured: Iterable[Iterable[str]]) -> list[str]:
  """The read-outs that are in all of these, in the order of the first."""
  first, *others = map(list, measured)
  return [name for name in first if all(name in other for other in others)]


def summary(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
  """All seeds: means with 95 % confidence intervals."""

  def estimate(values):
    if None in values:
      return {"mean": None, "ci95": None}
    mean, ci95 = protocol.confidence_interval(values)
    return {"mean": mean, "ci95": ci95}

  return {
    name: {
      "average": estimate([run["average"][name] for run in runs]),
      "forgetting": estimate([run["forgetting"][name] for run in runs]),
      "per_phase": [
        estimate([phase["accuracy"][name] for phase in phases])
        for phases in zip(*(run["phases"] for run in runs), strict=True)
      ],
    }
    for name in shared_readouts(run["average"] for run in runs)
  }


def results(
  header: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
  """The object of results.json, from its header and the records of the seeds."""
  return {
    **header,
    "seeds": [run["seed"] for run in runs],
    "runs": list(runs),
    "summary": summary(runs),
  }


def unfinished(
  header: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> dict[str, Any] | None:
  """What results.json would be, had the run been meant to end here.

  It covers the phases that all seeds have ended that have ended any.

  Args:
    header: what was known before anything was measured.
    lines: of metrics.jsonl.
  """
  phases: dict[int, list[Mapping[str, Any]]] = {}
  for line in lines:
    if line.get("kind") != "phase" or mismatch(line, layout.PHASE):
      continue
    before = phases.setdefault(line["seed"], [])
    if line["phase"] == len(
      before
    ):  # Nothing counts after a phase that is missing.
      before.append(line)
  phases = {seed: found for seed, found in phases.items() if found}
  if not phases:
    return None
  count = min(map(len, phases.values()))
  split = list(header["classes_per_phase"][:count])
  known = dict(header) | {
    "classes_per_phase": split,
    "class_names": list(header["class_names"][: sum(split)]),
  }
  runs = [run_record(seed, found[:count]) for seed, found in phases.items()]
  return results(known, runs)


# A run that is read.


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run; `load_run` makes one from a work directory.

  Attributes:
    path: the work directory.
    config: config.json, empty when there is none.
    results: results.json; of an unfinished run what it would be so far.
    problems: a sentence for everything that was to be read and is damaged.
  """

  path: Path
  config: dict[str, Any]
  results: dict[str, Any]
  problems: list[str] = dataclasses.field(default_factory=list, compare=False)

  @property
  def phases_left(self) -> int:
    """How many phases there will be beyond those in `results`."""
    planned = self.config.get("results", {}).get("classes_per_phase", [])
    return max(len(planned) - len(self.results["classes_per_phase"]), 0)

  @functools.cached_property
  def metrics(self) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; bad ones are among `problems`."""
    found: list[str] = []
    lines = read_metrics(self.path, found)
    there = {
      (line["seed"], line["phase"])
      for line in lines
      if line.get("kind") == "phase"
    }
    measured = [
      (run["seed"], phase["phase"])
      for run in self.results["runs"]
      for phase in run["phases"]
    ]
    if missing := len(set(measured) - there):
      found.append(
        f"{layout.metrics_path(self.path)} lacks {missing} of {len(measured)}"
        " phases: curves and durations are incomplete."
      )
    self._add(found)
    return lines

  def _add(self, problems):
    self.problems.extend(one for one in problems if one not in self.problems)

  @property
  def durations(self) -> list[float]:
    """Seconds of each seed, 0 where they are not known."""
    spent = dict.fromkeys(self.results["seeds"], 0.0)
    for record in self.metrics:
      if record.get("kind") == "phase" and record.get("seed") in spent:
        spent[record["seed"]] += sum(record.get("seconds", {}).values())
    return [*spent.values()]

  def arrays(
    self, seed: int, phase: int, prefix: str = ""
  ) -> dict[str, np.ndarray]:
    """What a phase saved under names with a prefix; empty when nothing.

    A damaged file is among `problems`, and as good as none.
    """
    try:
      return read_phase_arrays(self.path, seed, phase, prefix)
    except WorkdirError as error:
      self._add([f"{error.problem}, and pictures of it are left out."])
      return {}


def load_run(workdir: AnyPath, *, unfinished: bool = False) -> Run:
  """Reads and checks the work directory of a run.

  Args:
    workdir: where it is.
    unfinished: whether a run that has not ended will do, as far as it has come.

  Raises:
    WorkdirError: when there is nothing to report on, saying why.
  """
  path = Path(workdir)
  if not path.is_dir():
    raise WorkdirError(
      "workdir",
      f"There is no directory {path}",
      "name the work directory of a finished run",
    )
  name = layout.results_path(path).name
  if not layout.results_path(path).exists():
    if unfinished and (found := _unfinished(path)):
      return found
    log = layout.metrics_path(path)
    if log.exists():
      raise WorkdirError(
        name,
        f"The run in {path} is not finished: it has {log.name} but no {name} yet",
        "let it end, or repeat its command to continue it",
      )
    raise WorkdirError(
      name,
      f"{path} has no {name}: it is not the work directory of a run",
      "name one in which a run has finished",
    )
  # First the configuration, which knows if the rest can be understood.
  config = layout.read_config(path)
  return Run(path, config, layout.read_results(path))


def _unfinished(path):
  """What there is of a run, None before the end of its first phase."""
  config = layout.read_config(path)
  if "results" not in config:
    return None
  problems: list[str] = []
  results = unfinished(config["results"], read_metrics(path, problems))
  return None if results is None else Run(path, config, results, problems)
