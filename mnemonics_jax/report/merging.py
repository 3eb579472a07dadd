"""Runs that differ in nothing but their seeds are one run in a comparison."""

from collections.abc import Sequence
import dataclasses

from mnemonics_jax.runs import records as results_lib
from mnemonics_jax.runs.finished import Run


def merge_seeds(runs: Sequence[Run]) -> list[Run]:
  """Joins runs with equal settings and different seeds, in their order.

  A joined run has the first one's directory, and that one's seed comes first.
  Runs with a seed in common stay apart: they are repetitions to be compared.
  """
  merged: list[Run] = []
  for run in runs:
    for index, other in enumerate(merged):
      if _same_but_seeds(run, other):
        merged[index] = _join(other, run)
        break
    else:
      merged.append(run)
  return merged


def _same_but_seeds(run: Run, other: Run) -> bool:
  settings, others = (
    {**r.config.get("settings", {}), "seeds": None} for r in (run, other)
  )
  return (
    settings == others
    and len(settings) > 1
    and run.results["title"] == other.results["title"]
    and run.results["class_names"] == other.results["class_names"]
    and run.results["classes_per_phase"] == other.results["classes_per_phase"]
    and run.results["summary"].keys() == other.results["summary"].keys()
    and not set(run.results["seeds"]) & set(other.results["seeds"])
  )


def _join(first: Run, second: Run) -> Run:
  records = [*first.results["runs"], *second.results["runs"]]
  return dataclasses.replace(
    first,
    results={
      **first.results,
      "seeds": [*first.results["seeds"], *second.results["seeds"]],
      "runs": records,
      "summary": results_lib.summary(records),
    },
  )
