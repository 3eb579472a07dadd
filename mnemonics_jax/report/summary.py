"""A run in plain words and in the few numbers that matter."""

from collections.abc import Mapping, Sequence
from typing import Any

from mnemonics_jax import registry
from mnemonics_jax.data.sources import title_of
from mnemonics_jax.report import failures
from mnemonics_jax.report.estimate import format_duration
from mnemonics_jax.report.tables import (
  paired_difference,
  percent,
  tested_classes,
)
from mnemonics_jax.report.words import share
from mnemonics_jax.runs.finished import Run


def outcome(run: Run) -> str:
  """How it ended, first of all what failed."""
  results = run.results
  base, *later = results["classes_per_phase"]
  total = base + sum(later)
  summary = results["summary"][results["readout"]]
  readout = results["readout"]
  if readout in registry.READOUTS:
    readout = f"{registry.READOUTS[readout]} ({readout})"
  last, loss = summary["per_phase"][-1]["mean"], summary["forgetting"]["mean"]
  tested = results["runs"][0]["phases"][-1].get("classes_tested")
  which = f"all {total} classes"
  when = "So far" if run.phases_left else "In the end"
  if tested is not None:
    which = f"{tested} of {total} classes (there were none of the others)"
  text = (
    f"{when} {readout} recognises {share(last)} of the test images of {which}"
  )
  if failed := failures.failure(run):
    return f"{text}. {failed}"
  if later and loss is not None:
    change = "fell" if loss >= 0 else "rose"
    text += (
      f"; on the first {base} classes accuracy {change} by "
      f"{percent(abs(loss), 1)} points since they were learned"
    )
  return f"{text}."


def describe(results: Mapping[str, Any]) -> str:
  """What was learned, and with what."""
  base, *later = results["classes_per_phase"]
  text = (
    f"A network learned to tell {base + sum(later)} classes of "
    f"{title_of(results['dataset'])} apart"
  )
  if not later:
    text += " in a single phase. "
  else:
    each = (
      f"{min(later)}"
      if len(set(later)) == 1
      else (f"{min(later)} to {max(later)}")
    )
    follow = (
      f"{len(later)} phases of {each}"
      if len(later) > 1
      else (f"one phase of {each}")
    )
    text += f": {base} at first, then {follow} more. "
  if results["method"] == "joint":
    return text + (
      "It saw all images of all classes in every phase: this is the upper "
      "bound for learners that may not look back."
    )
  method = results["method"]
  if method in registry.METHODS:
    method = registry.METHODS[method].label
  return text + (
    f"It was trained with {method}; of classes it had already learned it "
    f"kept {_memory(results)} ({results['exemplars']} exemplars)."
  )


def caveat(results: Mapping[str, Any]) -> str:
  """What the numbers can be used for."""
  seeds = len(results["seeds"])
  text = (
    f"Numbers are means over {seeds} seeds, ± is the 95 % confidence interval. "
    if seeds > 1
    else "There is one seed, so nothing is known about the spread. "
  )
  phases = results["runs"][0]["phases"]
  if partly := [str(p["phase"]) for p in phases if "classes_tested" in p]:
    text += (
      f"Phase {', '.join(partly)}: there were test images of some classes only, "
      "and accuracies are over these; averages leave these phases out. "
    )
  if results["schedule"] == "paper":
    return text + "The settings are the paper's."
  text += (
    "The settings are not the paper's: do not compare these numbers with "
    "published ones."
  )
  departures = [str(part) for part in results.get("departures", ())]
  if departures:
    text += f" They differ in: {', '.join(departures)}."
  return text


def key_numbers(run: Run) -> list[tuple[str, str, str]]:
  """(name, value, note) for the top of the page."""
  results = run.results

  def spread(estimate: Mapping[str, float | None]) -> str:
    half = estimate.get("ci95")
    return "" if half is None else f"± {percent(half, 1)} · "

  summary = results["summary"][results["readout"]]
  phases = results["runs"][0]["phases"]
  last = phases[-1]
  averaged = sum("classes_tested" not in phase for phase in phases)
  numbers = [
    (
      "Average accuracy",
      f"{percent(summary['average']['mean'], 1)} %",
      f"{spread(summary['average'])}mean of {averaged} phases",
    ),
    (
      "After the last phase",
      f"{percent(summary['per_phase'][-1]['mean'], 1)} %",
      f"{spread(summary['per_phase'][-1])}{'all ' * ('classes_tested' not in last)}{tested_classes(last)} classes",
    ),
    (
      "Forgetting",
      percent(summary["forgetting"]["mean"], 1),
      f"{spread(summary['forgetting'])}points, first classes",
    ),
    (
      "Memory",
      f"{last['memory']['images']:,}",
      f"images, {_bytes(last['memory']['bytes'])}",
    ),
  ]
  durations = run.durations
  if any(durations):
    mean = sum(durations) / len(durations)
    numbers.append(("Duration", format_duration(mean), "per seed"))
  return numbers


def compare(names: Sequence[str], runs: Sequence[Run]) -> str:
  """Which of the runs on the same data is ahead, where that can be told."""
  if len(runs) == 1:
    return outcome(runs[0])
  reported = [
    run.results["summary"][run.results["readout"]]["average"]["mean"]
    for run in runs
  ]
  # The upper bound is no competitor, unless there are no two others.
  others = [i for i, r in enumerate(runs) if r.results["method"] != "joint"]
  ranked = others if len(others) > 1 else range(len(runs))
  order = sorted(ranked, key=lambda i: reported[i], reverse=True)
  if len({tuple(run.results["classes_per_phase"]) for run in runs}) > 1:
    return (
      "These runs do not have the same phases, so their averages cannot be "
      "compared; points of their curves above the same number of classes can."
    )
  first, second = order[:2]
  best, next_best = runs[first].results, runs[second].results
  found = paired_difference(
    best, next_best, best["readout"], next_best["readout"]
  )
  if found is None or found[1] is None or found[0] <= found[1]:
    low, high = order[-1], order[0]
    reason = (
      "the difference of the best two may be chance: its 95\u00a0% interval "
      "includes zero"
      if found and found[1] is not None
      else "that takes several seeds, the same for all"
    )
    return (
      f"No winner can be named: {reason}. Average accuracies reach from "
      f"{share(reported[low])} ({names[low]}) to {share(reported[high])} "
      f"({names[high]})."
    )
  bound = " below the upper bound" if len(ranked) < len(runs) else ""
  return (
    f"{names[first]} has the highest average accuracy{bound}, "
    f"{share(reported[first])}: {percent(found[0], 1)} ± {percent(found[1], 1)} "
    f"points above {names[second]}, seed by seed."
  )


def _memory(results: Mapping[str, Any]) -> str:
  """Of what is kept: 20 images per class, 61440 bytes in all as jpeg:75."""
  kind, _, number = results["memory"].partition(":")
  unit = "byte" if kind.endswith("_bytes") else "image"
  scope = {"per_class": "per class", "total": "in all"}.get(
    kind.removesuffix("_bytes")
  )
  if scope is None:
    return results["memory"]
  codec = results.get("codec", "raw")
  kept = f"{number} {unit}{'' if number == '1' else 's'} {scope}"
  return kept if codec == "raw" else f"{kept} as {codec}"


def _bytes(size: int) -> str:
  for unit, scale in (("MB", 1e6), ("kB", 1e3)):
    if size >= scale:
      return f"{size / scale:.1f} {unit}"
  return f"{size} bytes"
