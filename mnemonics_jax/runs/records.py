"""From confusion counts to the numbers of result.json and results.json.

Their fields are listed in `layout.PHASE`, `SEED_RESULT` and `RESULTS`.
"""

from collections.abc import Mapping, Sequence
import math
from typing import TYPE_CHECKING, Any

from mnemonics_jax import protocol
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.runs import layout
from mnemonics_jax.runs.schema import mismatch

if TYPE_CHECKING:  # It needs JAX, and a report only needs `summary`.
  import mnemonics_jax.types


def phase_record(
  result: "mnemonics_jax.types.PhaseResult", classes_per_phase: Sequence[int]
) -> dict[str, Any]:
  """One phase: accuracy of all, old and new classes for both read-outs."""
  n_old = sum(classes_per_phase[: result.phase])
  final = result.confusion["final"]
  tested = int((final[next(iter(READOUTS))].sum(1) > 0).sum())

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
    "accuracy": {name: protocol.accuracy(final[name]) for name in READOUTS},
    "by_group": {
      name: [
        _measured(share)
        for share in protocol.group_accuracies(final[name], classes_per_phase)
      ]
      for name in READOUTS
    },
    "moments": {
      moment: {name: shares(counts[name]) for name in READOUTS}
      for moment, counts in result.confusion.items()
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

  Averages are over the phases in which all classes were tested, if there are any.
  """
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
      for name in READOUTS
    },
    "forgetting": {name: forgetting(name) for name in READOUTS},
  }


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
    for name in runs[0]["average"]
  }


def results(
  header: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
  """The object of results.json.

  Args:
    header: what was known before anything was measured.
    runs: the records of the seeds.
  """
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
    if line["phase"] == len(before):  # One that is missing ends what is known.
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
