"""Curves of accuracy over the phases, of one run and of several."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
import numpy as np

from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report.drawing import (
  COLORS,
  MARKERS,
  Drawing,
  number,
  shorten,
)
from mnemonics_jax.report.labels import labels
from mnemonics_jax.report.tables import finetune_table, moment_mean, readouts
from mnemonics_jax.report.words import listed, share
from mnemonics_jax.runs.finished import Run

# Black is the upper bound's, the other colours are the learners'.
*_LEARNERS, _BOUND = COLORS


def phase_curve(run: Run) -> Iterator[Drawing]:
  """Accuracy on all classes seen so far, for each read-out."""
  figure, axes = _curve_axes()
  rows = []
  for index, name in enumerate(readouts(run.results)):
    reported = name == run.results["readout"]
    label = f"{name} (reported)" if reported else name
    _curve(axes, run, name, label, _look(index, reported))
    rows += [[name, *row] for row in _curve_rows(run, name)]
  _class_ticks(axes, [run])
  axes.legend()
  seeds = [f"seed_{seed}_percent" for seed in run.results["seeds"]]
  header = ["readout", "phase", "classes_seen", "mean_percent", "ci95_percent"]
  yield Drawing(
    "phase_curve", figure, [*header, *seeds], rows, _course(run.results)
  )


def comparison_curves(runs: Sequence[Run]) -> Iterator[Drawing]:
  """The phase curves of several runs over each other, one per read-out.

  A run has the same look in both. Joint training, which may look back, is the
  upper bound: dashed, in a colour of its own.
  """
  names, looks = labels(runs), _looks(runs)
  for readout in READOUTS:
    shown = [
      (run, f"{name} (upper bound)" if _joint(run) else name, look)
      for run, name, look in zip(runs, names, looks, strict=True)
      if readout in run.results["summary"]
    ]
    if not shown:
      continue
    figure, axes = _curve_axes(extra_height=0.21 * len(shown))
    rows, entries = [], []
    for run, name, look in shown:
      ribbon = 0.16 if len(shown) < 6 else 0.09
      line = _curve(axes, run, readout, name, look, ribbon)
      last = run.results["summary"][readout]["per_phase"][-1]["mean"]
      entries.append((last, line, name))
      seeds = len(run.results["seeds"])
      rows += [
        [name, int(_joint(run)), seeds, *row[:4]]
        for row in _curve_rows(run, readout)
      ]
    _class_ticks(axes, runs)
    # The legend has the order in which the curves end.
    entries.sort(key=lambda entry: -entry[0])
    figure.legend(
      [line for _, line, _ in entries],
      [shorten(name, 56) for *_, name in entries],
      loc="outside lower left",
      ncols=1,
      handlelength=3.2,
      fontsize=9.5,
    )
    axes.set_title(f"read-out {readout}")
    header = ["run", "upper_bound", "seeds", "phase", "classes_seen"]
    header += ["mean_percent", "ci95_percent"]
    ends = [f"{share(last)} ({name})" for last, _, name in entries]
    yield Drawing(
      f"comparison_{readout}",
      figure,
      header,
      rows,
      f"After the last phase {readout} has {listed(ends)}.",
    )


def moment_curves(run: Run) -> Iterator[Drawing]:
  """Both read-outs before and after the fine-tune, on old and new classes."""
  results = run.results
  tuned = any(finetune_table(results, name) for name in readouts(results))
  # Where nothing was tuned, the two moments are the same.
  moments = ("trained", "final") if tuned else ("final",)
  groups = ("old", "new", "all")
  figure = Figure(figsize=(8.6, 3.5), layout="constrained")
  panels = figure.subplots(1, len(groups), sharey=True, sharex=True)
  phases = [phase["phase"] for phase in results["runs"][0]["phases"]]
  rows = []
  for axes, classes in zip(panels, groups, strict=True):
    for index, name in enumerate(readouts(results)):
      for moment in moments:
        before = moment == "trained"
        found = [moment_mean(results, p, moment, name, classes) for p in phases]
        axes.plot(
          phases,
          [np.nan if v is None else 100 * v for v in found],
          color=COLORS[index],
          marker=MARKERS[index],
          markerfacecolor="white" if before else None,
          linestyle=(0, (4, 2)) if before else "-",
          linewidth=1.3 if before else 1.9,
          zorder=2 if before else 3,
          label=f"{name}, {'before' if before else 'after'} the fine-tune"
          if tuned
          else name,
        )
        rows += [
          [
            classes,
            name,
            "before" if before else "after",
            phase,
            number(v, 100),
          ]
          for phase, v in zip(phases, found, strict=True)
          if v is not None
        ]
    axes.set_title(f"{classes} classes")
    axes.set_xlabel("phase")
    if len(phases) <= 12:
      axes.set_xticks(phases)
  if not rows:
    return
  panels[0].set_ylabel("accuracy (%)")
  handles, names = panels[-1].get_legend_handles_labels()
  figure.legend(handles, names, loc="outside upper left", ncols=4, fontsize=9)
  header = ["classes", "readout", "moment", "phase", "mean_percent"]
  yield Drawing("moments", figure, header, rows, _balance(results, tuned))


def _course(results: Mapping[str, Any]) -> str:
  """Where the curves of the read-outs begin and end."""
  counts = [p["classes_seen"] for p in results["runs"][0]["phases"]]
  ways = []
  for name in readouts(results):
    means = [e["mean"] for e in results["summary"][name]["per_phase"]]
    if len(means) == 1:
      ways.append(f"{name} has {share(means[0])}")
      continue
    verb = "rises" if means[-1] > means[0] else "falls"
    ways.append(f"{name} {verb} from {share(means[0])} to {share(means[-1])}")
  if len(counts) == 1:
    return f"On {counts[0]} classes, {listed(ways)}."
  return f"From {counts[0]} to {counts[-1]} classes, {listed(ways)}."


def _balance(results: Mapping[str, Any], tuned: bool) -> str:
  """Old classes beside new ones after the last phase."""
  last, parts = len(results["classes_per_phase"]) - 1, []
  for name in readouts(results):
    old, new = (
      moment_mean(results, last, "final", name, which)
      for which in ("old", "new")
    )
    if old is None or new is None:
      continue
    text = (
      f"{name} has {share(old)} on old classes and {share(new)} on new ones"
    )
    before = moment_mean(results, last, "trained", name, "old")
    if tuned and before is not None and before != old:
      text += f" (on old ones {share(before)} before the fine-tune)"
    parts.append(text)
  if not parts:
    return "There is one phase, and no old class."
  return f"After the last phase {listed(parts)}."


def _curve_axes(extra_height: float = 0.0) -> tuple[Figure, Axes]:
  figure = Figure(figsize=(5.4, 3.8 + extra_height), layout="constrained")
  axes = figure.subplots()
  axes.set_xlabel("classes learned so far")
  axes.set_ylabel("accuracy on all of them (%)")
  return figure, axes


def _curve(
  axes: Axes,
  run: Run,
  readout: str,
  label: str,
  look: dict[str, Any],
  ribbon: float = 0.16,
) -> Line2D:
  classes = [p["classes_seen"] for p in run.results["runs"][0]["phases"]]
  estimates = run.results["summary"][readout]["per_phase"]
  mean = [100 * e["mean"] for e in estimates]
  (line,) = axes.plot(classes, mean, label=label, zorder=3, **look)
  half = [100 * (e.get("ci95") or 0.0) for e in estimates]
  if any(half):
    low = [max(m - h, 0.0) for m, h in zip(mean, half, strict=True)]
    high = [min(m + h, 100.0) for m, h in zip(mean, half, strict=True)]
    axes.fill_between(
      classes, low, high, color=look["color"], alpha=ribbon, linewidth=0
    )
  return line


def _look(index: int, bold: bool) -> dict[str, Any]:
  return dict(
    color=COLORS[index],
    marker=MARKERS[index],
    linewidth=2.2 if bold else 1.4,
    linestyle="-" if bold else (0, (4, 2)),
  )


def _looks(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """A colour, marker and line for each run; no two alike among dozens."""
  looks, learners, bounds = [], 0, 0
  for run in runs:
    if _joint(run):
      # Without markers: nothing else is black, and nothing else is dashed.
      dash = ((0, (6, 2.5)), (0, (2, 2)))[bounds % 2]
      looks.append(dict(color=_BOUND, linestyle=dash, linewidth=1.8))
      bounds += 1
      continue
    turn, index = divmod(learners, len(_LEARNERS))
    color = _LEARNERS[index]
    looks.append(
      dict(
        color=color,
        marker=MARKERS[learners % len(MARKERS)],
        markerfacecolor="white" if turn % 2 else color,
        linestyle="-",
        linewidth=1.6,
      )
    )
    learners += 1
  return looks


def _joint(run: Run) -> bool:
  return run.results["method"] == "joint"


def _class_ticks(axes: Axes, runs: Sequence[Run]) -> None:
  classes = {
    phase["classes_seen"]
    for run in runs
    for phase in run.results["runs"][0]["phases"]
  }
  if len(classes) <= 12:
    axes.set_xticks(sorted(classes))


def _curve_rows(run: Run, readout: str) -> list[list[Any]]:
  estimates = run.results["summary"][readout]["per_phase"]
  return [
    [
      phase["phase"],
      phase["classes_seen"],
      number(estimate["mean"], 100),
      number(estimate.get("ci95"), 100),
      *(
        number(r["phases"][index]["accuracy"][readout], 100)
        for r in run.results["runs"]
      ),
    ]
    for index, (phase, estimate) in enumerate(
      zip(run.results["runs"][0]["phases"], estimates, strict=True)
    )
  ]
