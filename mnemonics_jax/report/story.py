"""A run in plain words: its outcome, what it failed at, what may help."""

from collections.abc import Mapping, Sequence
import statistics
from typing import Any

import numpy as np

from mnemonics_jax import registry
from mnemonics_jax.data.sources import title_of
from mnemonics_jax.report.tables import (
  paired_difference,
  percent,
  tested_classes,
)
from mnemonics_jax.report.words import (
  capital,
  count,
  format_duration,
  listed,
  share,
  spans,
)
from mnemonics_jax.runs.results import Run

# A class is forgotten below this share of its first accuracy.
_FORGOTTEN = 1 / 3
# A class is left behind below this share of the average accuracy.
_LEFT_BEHIND = 1 / 4
# Below this accuracy after phase 0, a network needs more training.
_TRAINED = 0.3


def outcome(run: Run) -> str:
  """How the run ended: its accuracy, then failures or forgetting."""
  results = run.results
  base, *later = results["classes_per_phase"]
  total = base + sum(later)
  summary = results["summary"][results["readout"]]
  readout = results["readout"]
  if readout in registry.READOUTS:
    readout = f"{registry.READOUTS[readout].help} ({readout})"
  last, loss = summary["per_phase"][-1]["mean"], summary["forgetting"]["mean"]
  tested = results["runs"][0]["phases"][-1].get("classes_tested")
  which = f"all {total} classes"
  when = "So far" if run.phases_left else "In the end"
  if tested is not None:
    which = f"{tested} of {total} classes (there were none of the others)"
  text = (
    f"{when} {readout} recognises {share(last)} of the test images of {which}"
  )
  if failed := failure(run):
    return f"{text}. {failed}"
  if later and loss is not None:
    change = "fell" if loss >= 0 else "rose"
    text += (
      f"; on the first {base} classes accuracy {change} by "
      f"{percent(abs(loss), 1)} points since they were learned"
    )
  return f"{text}."


def unfinished(run: Run) -> str:
  """How far a run has come that has not ended, else ""."""
  if not run.phases_left:
    return ""
  done = len(run.results["classes_per_phase"])
  return (
    f"This run has not ended: {done} of {done + run.phases_left} phases are"
    " shown here."
  )


def describe(results: Mapping[str, Any]) -> str:
  """The data, the phases, the method and the memory of a run."""
  base, *later = results["classes_per_phase"]
  text = (
    f"A network learned to tell {base + sum(later)} classes of "
    f"{title_of(results['dataset'])} apart"
  )
  if later:
    low, high = min(later), max(later)
    each = f"{low}" if low == high else f"{low} to {high}"
    phases = f"{len(later)} phases" if len(later) > 1 else "one phase"
    text += f": {base} at first, then {phases} of {each} more. "
  else:
    text += " in a single phase. "
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
  """Which comparisons the numbers allow."""
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

  def spread(estimate: Mapping[str, float | None]) -> str:
    half = estimate.get("ci95")
    return "" if half is None else f"± {percent(half, 1)} · "

  summary = run.results["summary"][run.results["readout"]]
  average, forgetting = summary["average"], summary["forgetting"]
  end = summary["per_phase"][-1]
  phases = run.results["runs"][0]["phases"]
  averaged = sum("classes_tested" not in phase for phase in phases)
  last = phases[-1]
  classes = f"{tested_classes(last)} classes"
  if "classes_tested" not in last:
    classes = f"all {classes}"
  memory = last["memory"]
  numbers = [
    (
      "Average accuracy",
      f"{percent(average['mean'], 1)} %",
      f"{spread(average)}mean of {averaged} phases",
    ),
    (
      "After the last phase",
      f"{percent(end['mean'], 1)} %",
      f"{spread(end)}{classes}",
    ),
    (
      "Forgetting",
      percent(forgetting["mean"], 1),
      f"{spread(forgetting)}points, first classes",
    ),
    (
      "Memory",
      f"{memory['images']:,}",
      f"images, {_bytes(memory['bytes'])}",
    ),
  ]
  if any(run.durations):
    mean = sum(run.durations) / len(run.durations)
    numbers.append(("Duration", format_duration(mean), "per seed"))
  return numbers


def compare(names: Sequence[str], runs: Sequence[Run]) -> str:
  """Which run on the same data is ahead, if that can be told."""
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
    low = order[-1]
    reason = (
      "the difference of the best two may be chance: its 95\u00a0% interval "
      "includes zero"
      if found and found[1] is not None
      else "that takes several seeds, the same for all"
    )
    return (
      f"No winner can be named: {reason}. Average accuracies reach from "
      f"{share(reported[low])} ({names[low]}) to {share(reported[first])} "
      f"({names[first]})."
    )
  bound = " below the upper bound" if len(ranked) < len(runs) else ""
  return (
    f"{names[first]} has the highest average accuracy{bound}, "
    f"{share(reported[first])}: {percent(found[0], 1)} ± {percent(found[1], 1)} "
    f"points above {names[second]}, seed by seed."
  )


def warning(run: Run) -> str:
  """What a finished run has failed at and what may help, else "".

  Settings stand in backticks, as in errors.
  """
  return " ".join(part for part in (failure(run), advice(run)) if part)


def failure(run: Run) -> str:
  """Which classes are never predicted or hardly recognised, or "".

  Means over the seeds, of the reported read-out.
  """
  results = run.results
  never = _never_predicted(run)
  if never:
    return f"{_subject(never, results)} never predicted{_numbers(run, never)}."
  overall = results["summary"][results["readout"]]["per_phase"][-1]["mean"]
  weak = {
    phase: (start, end)
    for phase, (start, end) in _by_phase(results).items()
    if end < _FORGOTTEN * start or end < _LEFT_BEHIND * overall
  }
  sizes = results["classes_per_phase"]
  if not weak or len(sizes) == 1:
    return ""
  counts = [sizes[phase] for phase in weak]
  start, end = np.average([*weak.values()], axis=0, weights=counts).tolist()
  many = sum(counts) > 1
  subject = "The classes" if many else "The class"
  if [*weak] == [0]:
    subject = (
      f"The first {count(sizes[0])} classes" if many else "The first class"
    )
  else:
    subject += f" of phase{'s' * (len(weak) > 1)} {spans([*weak])}"
  return (
    f"{subject} {'are' if many else 'is'} hardly recognised: {share(start)} of"
    f" the test images when new, {share(end)} at the end."
  )


def advice(run: Run) -> str:
  """What may help against a failure; "" if there is none."""
  results = run.results
  if results["method"] == "joint" or not failure(run):
    return ""
  readout, settings = results["readout"], run.config.get("settings", {})
  summary = results["summary"]
  start = summary[readout]["per_phase"][0]["mean"]
  found = []
  if start < _TRAINED:
    found.append(
      f"more `base_epochs` and `epochs`, as only {share(start)} were recognised "
      "after phase 0"
    )
  elif readout == "head" and settings.get("finetune", "none") == "none":
    found.append(
      "`finetune=head`, which ends each phase with equal parts of all classes"
    )
  last = {name: s["per_phase"][-1]["mean"] for name, s in summary.items()}
  if readout == "head" and last.get("nme", 0.0) > last["head"]:
    found.append(
      "`method=icarl`, which compares with the means of exemplars: these have "
      f"{share(last['nme'])} in this run"
    )
  return f"What may help: {'; or '.join(found or ['a larger `memory`'])}."


def _never_predicted(run: Run) -> list[int]:
  """Classes that have test images, but are predicted for none at all."""
  last = len(run.results["classes_per_phase"]) - 1
  counts = _confusion(run, last)
  if counts is None:
    return []
  return np.flatnonzero((counts.sum(0) == 0) & (counts.sum(1) > 0)).tolist()


def _confusion(run: Run, phase: int) -> np.ndarray | None:
  """Counts over all seeds by the reported read-out, None if not saved."""
  name = f"confusion/final/{run.results['readout']}"
  found = [run.arrays(s, phase, name).get(name) for s in run.results["seeds"]]
  counts = [array for array in found if array is not None]
  return np.sum(counts, axis=0) if len(counts) == len(found) else None


def _subject(classes: Sequence[int], results: Mapping[str, Any]) -> str:
  """The classes in words, and the verb."""
  names, number = results["class_names"], len(classes)
  for which, places in (
    ("oldest", range(number)),
    ("newest", range(len(names) - number, len(names))),
  ):
    if list(classes) == list(places):
      return (
        f"The {which} class is"
        if number == 1
        else f"The {count(number)} {which} classes are"
      )
  if number <= 3:
    subject, verb = ("class", "is") if number == 1 else ("classes", "are")
    return f"The {subject} {listed([names[c] for c in classes])} {verb}"
  base = sum(c < results["classes_per_phase"][0] for c in classes)
  origin = f", {count(base)} of them from phase 0," if base else ""
  return f"{capital(count(number))} of {len(names)} classes{origin} are"


def _numbers(run: Run, classes: Sequence[int]) -> str:
  """The accuracy on these classes when they were new; "" if not saved."""
  sizes = run.results["classes_per_phase"]
  phases = np.repeat(np.arange(len(sizes)), sizes)
  shares = []
  for phase in np.unique(phases[list(classes)]).tolist():
    counts = _confusion(run, phase)
    if counts is None:
      return ""
    own = [c for c in classes if phases[c] == phase]
    shares += [counts[c, c] / counts[c].sum() for c in own if counts[c].sum()]
  if not any(shares):
    return ""
  return (
    f": {share(statistics.fmean(shares))} of the test images were recognised when "
    "new, 0\u00a0% at the end"
  )


def _by_phase(results: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
  """Accuracy on each phase's classes when new and at the end, if tested."""
  found = {}
  for phase in range(len(results["classes_per_phase"])):
    new, end = (
      [
        run["phases"][after]["by_group"][results["readout"]][phase]
        for run in results["runs"]
      ]
      for after in (phase, -1)
    )
    if None not in (*new, *end):
      found[phase] = statistics.fmean(new), statistics.fmean(end)
  return found


def _memory(results: Mapping[str, Any]) -> str:
  """The memory budget: "20 images per class", "61440 bytes in all as jpeg:75"."""
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
