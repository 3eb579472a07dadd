"""What went wrong in a run, in a sentence, and what would help."""

from collections.abc import Mapping, Sequence
import statistics
from typing import Any

import numpy as np

from mnemonics_jax.report.words import capital, count, listed, share, spans
from mnemonics_jax.runs.finished import Run

# Less than this share of what was known is hardly anything.
_FORGOTTEN = 1 / 3
# So much less than of the average class is too little.
_LEFT_BEHIND = 1 / 4
# Below this accuracy after phase 0, a network is not trained well.
_TRAINED = 0.3


def warning(run: Run) -> str:
  """What a run has failed at and what would help, else "".

  Settings stand in backticks, as in errors.

  >>> from mnemonics_jax import runs
  >>> warning(runs.load_run("finished_run"))  # It remembers most classes.
  ''

  Args:
    run: a finished one.
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
    f"{subject} {'are' if many else 'is'} hardly recognised: {share(start)} of the test images when "
    f"new, {share(end)} at the end."
  )


def advice(run: Run) -> str:
  """What would help against a failure; "" if there is none."""
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
  """Classes that were tested and that no test image is taken for."""
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
  """How well classes were recognised when they were learned, if that is known."""
  phases = np.repeat(
    np.arange(len(run.results["classes_per_phase"])),
    run.results["classes_per_phase"],
  )
  shares = []
  for phase in np.unique(phases[list(classes)]).tolist():
    counts = _confusion(run, phase)
    if counts is None:
      return ""
    own = [c for c in classes if phases[c] == phase]
    shares += [counts[c, c] / counts[c].sum() for c in own if counts[c].sum()]
  if not shares or not any(shares):
    return ""
  return (
    f": {share(statistics.fmean(shares))} of the test images were recognised when "
    "new, 0\u00a0% at the end"
  )


def _by_phase(results: Mapping[str, Any]) -> dict[int, tuple[float, float]]:
  """Accuracy on each phase's classes when they were new, and in the end."""
  found = {}
  for phase in range(len(results["classes_per_phase"])):
    new, end = (
      [
        run["phases"][after]["by_group"][results["readout"]][phase]
        for run in results["runs"]
      ]
      for after in (phase, -1)
    )
    if None not in (*new, *end):  # They may not have been tested.
      found[phase] = statistics.fmean(new), statistics.fmean(end)
  return found
