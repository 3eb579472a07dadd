"""Curves: accuracy over the phases, loss and accuracy over the epochs."""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
import numpy as np

from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report.drawing import (
  COLORS,
  FAINT,
  MARKERS,
  Drawing,
  number,
  shorten,
)
from mnemonics_jax.report.labels import labels
from mnemonics_jax.report.tables import finetune_table, moment_mean, readouts
from mnemonics_jax.runs.finished import Run

# Black is the upper bound's, the other colours are the learners'.
*_LEARNERS, _BOUND = COLORS

_STAGE_ORDER = ("train", "exemplars", "adjust", "finetune")


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
  yield Drawing("phase_curve", figure, [*header, *seeds], rows)


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
    yield Drawing(f"comparison_{readout}", figure, header, rows)


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
  yield Drawing("moments", figure, header, rows)


def training_curves(run: Run) -> Iterator[Drawing]:
  """Loss and accuracy over the epochs of all phases and stages."""
  place = ("seed", "phase", "stage", "epoch")
  # Keyed by place: of an epoch that was repeated, the last record counts.
  epochs = list(
    {
      tuple(m[key] for key in place): m
      for m in run.metrics
      if all(key in m for key in place) and ("loss" in m or "accuracy" in m)
    }.values()
  )
  if not epochs:
    return
  start, ends = _time_line(epochs)
  stages = _stages(epochs)
  figure = Figure(figsize=(8.0, 4.8), layout="constrained")
  panels = figure.subplots(2, 1, sharex=True)
  lines: dict[tuple, list[dict[str, Any]]] = {}
  for record in epochs:
    key = record["seed"], record["phase"], record["stage"]
    lines.setdefault(key, []).append(record)
  first_seed = epochs[0]["seed"]
  for axes, field in zip(panels, ("loss", "accuracy"), strict=True):
    scale = 100 if field == "accuracy" else 1
    for (seed, phase, stage), records in lines.items():
      points = [
        (start[phase, stage] + r["epoch"] + 1, scale * r[field])
        for r in records
        if r.get(field) is not None
      ]
      if points:
        axes.plot(
          *zip(*points, strict=True),
          color=COLORS[stages.index(stage) % len(COLORS)],
          alpha=1.0 if seed == first_seed else 0.35,
          linewidth=1.4,
          marker="." if len(points) == 1 else "",
          label=stage,
        )
    _phase_bands(axes, ends, numbers=field == "loss")
    axes.set_ylabel("loss" if field == "loss" else "accuracy (%)")
    axes.grid(False, axis="x")
  panels[0].set_ylim(bottom=0)
  panels[1].set_xlabel("epochs of all phases, one after the other")
  handles, names = panels[0].get_legend_handles_labels()
  # The first line of a stage is the first seed's, in full colour.
  unique = dict(zip(names[::-1], handles[::-1], strict=True))
  figure.legend(
    [unique[s] for s in stages if s in unique],
    [s for s in stages if s in unique],
    loc="outside upper right",
    ncols=len(unique) or 1,
  )
  header = [*place, "position", "loss", "accuracy"]
  rows = [
    [
      *(r[key] for key in place),
      start[r["phase"], r["stage"]] + r["epoch"] + 1,
      number(r.get("loss")),
      number(r.get("accuracy")),
    ]
    for r in epochs
  ]
  yield Drawing("training_curves", figure, header, rows)


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


def _stages(epochs: Sequence[dict[str, Any]]) -> list[str]:
  found = dict.fromkeys(record["stage"] for record in epochs)
  known = [stage for stage in _STAGE_ORDER if stage in found]
  return known + [stage for stage in found if stage not in known]


def _time_line(
  epochs: Sequence[dict[str, Any]],
) -> tuple[dict[tuple[int, str], int], dict[int, int]]:
  """Where each stage begins and each phase ends when laid end to end."""
  length: dict[tuple[int, str], int] = {}
  for record in epochs:
    key = record["phase"], record["stage"]
    length[key] = max(length.get(key, 0), record["epoch"] + 1)
  start, ends, position = {}, {}, 0
  stages = _stages(epochs)
  for key in sorted(length, key=lambda k: (k[0], stages.index(k[1]))):
    start[key] = position
    position += length[key]
    ends[key[0]] = position
  return start, ends


def _phase_bands(axes: Axes, ends: dict[int, int], *, numbers: bool) -> None:
  """Shades every second phase; numbers them as far as there is room."""
  begin, every = 0, 1 + len(ends) // 16
  for index, (phase, end) in enumerate(ends.items()):
    # Epoch e is drawn at e + 1, so a band reaches half an epoch further.
    if index % 2:
      axes.axvspan(begin + 0.5, end + 0.5, color=FAINT, zorder=0, linewidth=0)
    if numbers and index % every == 0:
      axes.text(
        (begin + end + 1) / 2,
        1.02,
        str(phase) if index else "phase 0",
        transform=axes.get_xaxis_transform(),
        ha="center",
        va="bottom",
        fontsize=9,
        color="0.35",
      )
    begin = end
  axes.set_xlim(0.5, begin + 0.5)
