"""Results as tables of text cells, and one of them as aligned columns."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

from mnemonics_jax import protocol
from mnemonics_jax.registry import READOUTS

REPORTED = " *"  # Marks the reported read-out wherever a table has both.
# Meta losses where a codec loses something (exemplars/learn.py): their columns.
_CODED = {
  "before": "before",
  "learned": "learned",
  "kept": "learned, then coded",
}


class Table(NamedTuple):
  """Text cells; the first column holds labels, the others numbers.

  Attributes:
    header: one cell per column.
    rows: the body.
    footer: rows that summarise the body.
    groups: (title, number of columns) spanning the header, or empty.
  """

  header: Sequence[str]
  rows: Sequence[Sequence[str]]
  footer: Sequence[Sequence[str]] = ()
  groups: Sequence[tuple[str, int]] = ()


def percent(fraction: float | None, digits: int = 2) -> str:
  if fraction is None:
    return "–"
  return f"{100 * fraction:.{digits}f}".replace("-", "−")


def points(difference: float | None) -> str:
  """A signed difference in percentage points; what rounds to zero has no sign."""
  if difference is None:
    return "–"
  text = f"{100 * difference:+.2f}".replace("-", "−")
  return text[1:] if text[1:] == "0.00" else text


def interval(estimate: Mapping[str, float | None], digits: int = 2) -> str:
  """`91.20 ± 0.45`, or the mean alone where there is no interval."""
  text = percent(estimate["mean"], digits)
  if estimate.get("ci95") is None:
    return text
  return f"{text} ± {percent(estimate['ci95'], digits)}"


def readouts(results: Mapping[str, Any]) -> list[str]:
  """The read-outs that were measured, in fixed order."""
  return [name for name in READOUTS if name in results["summary"]]


def readout_header(results: Mapping[str, Any]) -> list[str]:
  mark = {results["readout"]: REPORTED}
  return [name + mark.get(name, "") for name in readouts(results)]


def phase_table(results: Mapping[str, Any]) -> Table:
  """Accuracy on all classes seen, per phase and read-out."""
  names, summary = readouts(results), results["summary"]
  rows = [
    [
      str(phase["phase"]),
      tested_classes(phase),
      *(interval(summary[name]["per_phase"][index]) for name in names),
    ]
    for index, phase in enumerate(results["runs"][0]["phases"])
  ]
  footer = [
    [quantity, "", *(interval(summary[name][quantity]) for name in names)]
    for quantity in ("average", "forgetting")
  ]
  return Table(["phase", "classes", *readout_header(results)], rows, footer)


def tested_classes(phase: Mapping[str, Any]) -> str:
  """How many classes were seen, and of how many there were test images."""
  tested, seen = phase.get("classes_tested"), phase["classes_seen"]
  return str(seen) if tested is None else f"{tested} of {seen}"


def seed_table(results: Mapping[str, Any]) -> Table:
  """Last accuracy, average and forgetting of every seed."""
  names = readouts(results)
  rows = [
    [
      str(run["seed"]),
      *(percent(run["phases"][-1]["accuracy"][name]) for name in names),
      *(percent(run["average"][name]) for name in names),
      *(percent(run["forgetting"][name]) for name in names),
    ]
    for run in results["runs"]
  ]
  titles = ("last phase", "average", "forgetting")
  return Table(
    ["seed", *readout_header(results) * len(titles)],
    rows,
    groups=[("", 1), *((title, len(names)) for title in titles)],
  )


def moment_mean(
  results: Mapping[str, Any], phase: int, *place: str
) -> float | None:
  """An accuracy of a phase, mean over seeds; None if a seed lacks it.

  Args:
    results: of a run.
    phase: which phase.
    *place: the moment, "trained" before the fine-tune or "final" after it; the
      read-out; and "old" classes of earlier phases, "new" ones, or "all".
  """
  values = _moments(results, phase, *place)
  return None if values is None else fmean(values)


def _moments(
  results: Mapping[str, Any], phase: int, *place: str
) -> list[float] | None:
  """As `moment_mean`, seed by seed."""
  values = []
  for run in results["runs"]:
    found = run["phases"][phase].get("moments", {})
    for name in place:
      found = (found or {}).get(name)
    values.append(found)
  return None if None in values else values


def finetune_table(results: Mapping[str, Any], readout: str) -> Table | None:
  """One read-out before and after the fine-tune, on old and new classes.

  None when nothing changed between the two moments in any phase.
  """
  rows, moved = [], False
  for index, phase in enumerate(results["runs"][0]["phases"]):
    row = [str(phase["phase"])]
    for classes in ("old", "new", "all"):
      before, after = (
        _moments(results, index, moment, readout, classes)
        for moment in ("trained", "final")
      )
      if before is None or after is None:
        row += ["–"] * 3
        continue
      changes = [a - b for a, b in zip(after, before, strict=True)]
      moved = moved or any(changes)
      row += [
        percent(fmean(before)),
        percent(fmean(after)),
        _signed_interval(protocol.confidence_interval(changes)),
      ]
    rows.append(row)
  return (
    Table(
      ["phase", *("before", "after", "change") * 3],
      rows,
      groups=[("", 1), ("old classes", 3), ("new classes", 3), ("all", 3)],
    )
    if moved
    else None
  )


def coding_table(results: Mapping[str, Any]) -> Table | None:
  """What a codec leaves of learning: meta losses, the mean over the seeds.

  None where nothing was learned, or codes lose nothing of it.
  """
  found: dict[int, list[list[float]]] = {}
  for run in results["runs"]:
    for phase in run["phases"]:
      told = phase.get("diagnostics", {}).get("exemplars", {})
      losses = [told.get(f"loss_{name}") for name in _CODED]
      if all(isinstance(loss, float) for loss in losses):
        found.setdefault(phase["phase"], []).append(losses)
  rows = [
    [str(phase), *(f"{fmean(each):.4f}" for each in zip(*seeds, strict=True))]
    for phase, seeds in sorted(found.items())
  ]
  return Table(["phase", *_CODED.values()], rows) if rows else None


def paired_difference(
  results: Mapping[str, Any],
  other: Mapping[str, Any],
  readout: str,
  other_readout: str | None = None,
) -> tuple[float, float | None] | None:
  """Average accuracy minus the other run's, seed by seed: mean and ci95.

  None when the two do not have the same seeds and phases, or not this read-out.

  Args:
    results: of a run.
    other: of the run it is compared with.
    readout: which average.
    other_readout: of the other run, if it is not the same.
  """
  averages, others = (
    {run["seed"]: run["average"].get(name) for run in r["runs"]}
    for r, name in ((results, readout), (other, other_readout or readout))
  )
  if (
    results["classes_per_phase"] != other["classes_per_phase"]
    or averages.keys() != others.keys()
    or None in (*averages.values(), *others.values())
  ):
    return None
  return protocol.confidence_interval(
    [averages[s] - others[s] for s in averages]
  )


def comparison_table(
  labels: Sequence[str], runs: Sequence[Mapping[str, Any]], readout: str
) -> Table:
  """Several runs under each other, with the numbers papers print."""
  rows = []
  for label, results in zip(labels, runs, strict=True):
    summary = results["summary"].get(readout)
    if summary is None:
      continue
    found = None
    if results is not runs[0]:
      found = paired_difference(results, runs[0], readout)
    mark = REPORTED if readout == results["readout"] else ""
    rows.append(
      [
        label,
        str(len(results["seeds"])),
        results["schedule"],
        interval(summary["average"]) + mark,
        _signed_interval(found),
        interval(summary["per_phase"][-1]),
        interval(summary["forgetting"]),
      ]
    )
  header = ["run", "seeds", "schedule", "average", "difference"]
  return Table([*header, "last phase", "forgetting"], rows)


def _signed_interval(estimate: tuple[float, float | None] | None) -> str:
  if estimate is None or estimate[1] is None:
    return points(estimate and estimate[0])
  return f"{points(estimate[0])} ± {percent(estimate[1])}"


def console_table(results: Mapping[str, Any]) -> str:
  """Accuracy per phase as aligned columns, in percent.

  >>> from mnemonics_jax import runs
  >>> table = console_table(runs.load_run("finished_run").results)
  >>> for line in table.splitlines()[3:6]:
  ...   print(line)
  phase       classes           head *            nme
  ───────────────────────────────────────────────────
  0                 3  89.00 ± 12.71    84.00 ± 12.71
  """
  table = phase_table(results)
  # The mark stands beside the numbers, so they all end where headers end.
  lines = [
    [*row[:2], *(c if c.endswith(REPORTED) else f"{c}  " for c in row[2:])]
    for row in (table.header, *table.rows, *table.footer)
  ]
  widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
  text = [
    "  ".join(
      cell.rjust(width) if column else cell.ljust(width)
      for column, (cell, width) in enumerate(zip(line, widths, strict=True))
    ).rstrip()
    for line in lines
  ]
  seeds, body = len(results["seeds"]), len(table.rows) + 1
  over = f", mean ± 95 % confidence interval over {seeds} seeds"
  rule = "─" * max(map(len, text))
  return "\n".join(
    [
      results["title"],
      f"accuracy in percent{over if seeds > 1 else ''}",
      "",
      text[0],
      rule,
      *text[1:body],
      rule,
      *text[body:],
      "",
      "* the reported read-out",
    ]
  )
