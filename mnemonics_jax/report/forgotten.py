"""Whether a run has all but forgotten its first classes, and what would help."""

from collections.abc import Mapping
import statistics
from typing import Any

from mnemonics_jax import registry
from mnemonics_jax.report.tables import percent
from mnemonics_jax.runs.finished import Run

# Less than this share of what was known after phase 0 is hardly anything.
_SHARE = 1 / 3


def warning(run: Run) -> str:
  """A sentence if the base classes are hardly recognised at the end, else "".

  Settings stand in backticks, as in errors.

  >>> from mnemonics_jax import runs
  >>> warning(runs.load_run("finished_run"))  # It remembers most of them.
  ''

  Args:
    run: a finished one.
  """
  results = run.results
  readout, classes = results["readout"], results["classes_per_phase"]
  if len(classes) == 1 or results["method"] == "joint":
    return ""
  first, last = (_base_accuracy(results, readout, at) for at in (0, -1))
  if first is None or last is None or last >= _SHARE * first:
    return ""
  text = (
    f"The first {classes[0]} classes are hardly recognised any more: by"
    f" {registry.READOUTS.get(readout, readout)} {percent(last, 1)} % of their"
    f" test images, and {percent(first, 1)} % right after they were learned."
  )
  advice = []
  settings = run.config.get("settings", {})
  if readout == "head" and settings.get("finetune", "none") == "none":
    advice.append(
      "`finetune=head`, which ends each phase with equal parts of all classes"
    )
  if readout == "head":
    advice.append("`method=icarl`, which compares with the means of exemplars")
  if not advice:
    advice.append("a larger `memory`")
  return f"{text} What helps: {'; or '.join(advice)}."


def _base_accuracy(
  results: Mapping[str, Any], readout: str, phase: int
) -> float | None:
  """On the classes of phase 0, mean over seeds; None if they were not tested."""
  shares = [
    run["phases"][phase]["by_group"][readout][0] for run in results["runs"]
  ]
  return None if None in shares else statistics.fmean(shares)
