"""Every figure that is made of lines: accuracy, training, distances.

A figure is a list of rows, which its CSV file holds, and lines drawn from them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
import itertools
import statistics
from typing import Any, NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np

from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report.draw import COLORS, FAINT, MARKERS, Drawing
from mnemonics_jax.report.group import labels
from mnemonics_jax.report.tables import finetune_table, moment_mean, readouts
from mnemonics_jax.report.words import capital, listed, share, shorten
from mnemonics_jax.runs.results import Run

Row = Mapping[str, Any]

# Black is the upper bound's, the other colours are the learners'.
*_LEARNERS, _BOUND = COLORS
_DASHED = (0, (4, 2))
_MOST_TICKS = 12
ACCURACY = "accuracy on all of them (%)"

# Stages in the order in which a phase runs them.
_STAGES = ("train", "exemplars", "adjust", "finetune")
# Stages that change images: what they do to them, and their title.
MOVING = {
  "exemplars": ("learned", "learning new exemplars"),
  "adjust": ("adjusted", "adjusting old exemplars"),
}
_DISTANCES = {
  "displacement": "mean change of a pixel (grey levels)",
  "cosine": "cosine distance of features",
  "euclidean": "Euclidean distance of features",
}
_COMPARED = {"cosine": "cosine distance", "euclidean": "Euclidean distance"}
# Where a distance was measured.
_PLACE = ("phase", "part", "meta_epoch")
_MAX_COLUMNS = 4


class Line(NamedTuple):
  """One line of a panel.

  Attributes:
    rows: its points, from left to right.
    x: column of the rows.
    y: column of the rows; None in a row leaves a gap.
    look: keywords of `Axes.plot`; with a label, the line is in legends.
    half: column of half-widths, in percent, that are drawn as a ribbon.
    ribbon: opacity of the ribbon.
  """

  rows: Sequence[Row]
  x: str
  y: str
  look: Row
  half: str | None = None
  ribbon: float = 0.16


class Panel(NamedTuple):
  """Lines over one pair of axes.

  Attributes:
    lines: in the order in which they are drawn.
    title: above the panel.
    xlabel: below it.
    ylabel: beside it.
    ticks: all values of x are ticks, if there are few.
    legend: place of a legend inside the panel.
    small: small letters, whole numbers on x, and y from zero.
  """

  lines: Sequence[Line]
  title: str = ""
  xlabel: str = ""
  ylabel: str = ""
  ticks: bool = False
  legend: Any = ""
  small: bool = False


def plot(
  panels: Sequence[Sequence[Panel]],
  size: tuple[float, float],
  legend: Iterable[str] = (),
  *,
  sharex: Any = False,
  sharey: Any = False,
  **options: Any,
) -> Figure:
  """Draws panels in rows of equal length, with a legend outside of them.

  Args:
    panels: rows of panels.
    size: width and height in inches.
    legend: labels of lines, in the order of the legend.
    sharex: as in `Figure.subplots`.
    sharey: as in `Figure.subplots`.
    **options: keywords of `Figure.legend`.
  """
  figure = Figure(figsize=size, layout="constrained")
  shape = len(panels), len(panels[0])
  grid = figure.subplots(*shape, squeeze=False, sharex=sharex, sharey=sharey)
  handles: dict[Any, Any] = {}
  places = list(zip(itertools.chain(*panels), grid.flat, strict=True))
  for panel, axes in places:
    for line in panel.lines:
      drawn = _line(axes, line)
      handles.setdefault(drawn.get_label(), drawn)
  # Limits hold for all axes that share them: only now is everything drawn.
  for panel, axes in places:
    _finish(axes, panel)
  if legend := list(legend):
    words = [shorten(label, 56) for label in legend]
    figure.legend([handles[label] for label in legend], words, **options)
  return figure


def _line(axes: Axes, line: Line):
  """Draws a line with its ribbon; returns what stands for it in a legend."""
  x = [row[line.x] for row in line.rows]
  y = [np.nan if row[line.y] is None else row[line.y] for row in line.rows]
  (drawn,) = axes.plot(x, y, **line.look)
  half = [(line.half and row[line.half]) or 0.0 for row in line.rows]
  if any(half):
    low = np.maximum(np.subtract(y, half), 0.0)
    high = np.minimum(np.add(y, half), 100.0)
    color = line.look["color"]
    axes.fill_between(x, low, high, color=color, alpha=line.ribbon, linewidth=0)
  return drawn


def _finish(axes: Axes, panel: Panel) -> None:
  letters: dict[str, Any] = {"fontsize": 9.5} if panel.small else {}
  if panel.title:
    axes.set_title(panel.title, **letters)
  if panel.xlabel:
    axes.set_xlabel(panel.xlabel, **letters)
  if panel.ylabel:
    axes.set_ylabel(panel.ylabel, **letters)
  if panel.ticks:
    places = {row[line.x] for line in panel.lines for row in line.rows}
    if len(places) <= _MOST_TICKS:
      axes.set_xticks(sorted(places))
  if panel.small:
    axes.set_ylim(bottom=0)
    axes.margins(x=0.02)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=8.5)
  if panel.legend:
    axes.legend(loc=panel.legend, fontsize=8 if panel.small else None)


def split(rows: Iterable[Row], *columns: str) -> dict[Any, list[Row]]:
  """Rows by what stands in a column, or in several."""
  found: dict[Any, list[Row]] = {}
  for row in rows:
    key: Any = tuple(row[column] for column in columns)
    found.setdefault(key if columns[1:] else key[0], []).append(row)
  return found


def drawing(
  name: str, figure: Figure, rows: Sequence[Row], finding: str
) -> Drawing:
  """A figure whose rows are mappings."""
  cells = [list(row.values()) for row in rows]
  return Drawing(name, figure, list(rows[0]), cells, finding)


def accuracy_panel(
  rows: Sequence[Row], by: str, looks: Mapping[str, Row], **options: Any
) -> Panel:
  """Accuracy over the classes seen: a line for each value of a column."""
  place = "classes_seen", "mean_percent"
  ribbon = 0.16 if len(looks) < 6 else 0.09
  lines = [
    Line(found, *place, {"zorder": 3, **looks[name]}, "ci95_percent", ribbon)
    for name, found in split(rows, by).items()
  ]
  return Panel(lines, xlabel="classes learned so far", ticks=True, **options)


def phase_curve(run: Run) -> Iterator[Drawing]:
  """Accuracy on all classes seen so far, for each read-out."""
  rows, looks = [], {}
  for index, name in enumerate(readouts(run.results)):
    reported = name == run.results["readout"]
    looks[name] = dict(
      label=f"{name} (reported)" if reported else name,
      color=COLORS[index],
      marker=MARKERS[index],
      linewidth=2.2 if reported else 1.4,
      linestyle="-" if reported else _DASHED,
    )
    rows += [{"readout": name, **row} for row in _accuracy_rows(run, name)]
  panel = accuracy_panel(rows, "readout", looks, ylabel=ACCURACY, legend="best")
  figure = plot([[panel]], (5.4, 3.8))
  yield drawing("phase_curve", figure, rows, _course(run.results))


def comparison_curves(runs: Sequence[Run]) -> Iterator[Drawing]:
  """The phase curves of several runs over each other, one per read-out.

  A run looks the same in both. Joint training, which sees all images, is the
  upper bound: dashed, in a colour of its own.
  """
  looks = _looks(runs)
  for readout in READOUTS:
    shown = {
      look["label"]: run
      for look, run in zip(looks, runs, strict=True)
      if readout in run.results["summary"]
    }
    if not shown:
      continue
    rows = [
      {
        "run": name,
        "upper_bound": int(_joint(run)),
        "seeds": len(run.results["seeds"]),
        **dict([*row.items()][:4]),
      }
      for name, run in shown.items()
      for row in _accuracy_rows(run, readout)
    ]
    summaries = {n: run.results["summary"][readout] for n, run in shown.items()}
    last = {n: found["per_phase"][-1]["mean"] for n, found in summaries.items()}
    # The legend has the order in which the curves end.
    ends = sorted(last, key=lambda name: -last[name])
    panel = accuracy_panel(
      rows,
      "run",
      {look["label"]: look for look in looks if look["label"] in shown},
      title=f"read-out {readout}",
      ylabel=ACCURACY,
    )
    size = 5.4, 3.8 + 0.21 * len(shown)
    place = dict(loc="outside lower left", ncols=1, handlelength=3.2)
    figure = plot([[panel]], size, ends, **place, fontsize=9.5)
    words = listed([f"{share(last[name])} ({name})" for name in ends])
    finding = f"After the last phase {readout} has {words}."
    yield drawing(f"comparison_{readout}", figure, rows, finding)


def moment_curves(run: Run) -> Iterator[Drawing]:
  """Both read-outs before and after the fine-tune, on old and new classes."""
  results = run.results
  tuned = any(finetune_table(results, name) for name in readouts(results))
  # Without a fine-tune, the two moments are the same.
  moments = {"before": "trained"} if tuned else {}
  moments["after"] = "final"
  rows = [
    {
      "classes": classes,
      "readout": name,
      "moment": word,
      "phase": phase["phase"],
      "mean_percent": None if mean is None else 100 * mean,
    }
    for classes in ("old", "new", "all")
    for name in readouts(results)
    for word, moment in moments.items()
    for phase in results["runs"][0]["phases"]
    for mean in [moment_mean(results, phase["phase"], moment, name, classes)]
  ]
  written = [row for row in rows if row["mean_percent"] is not None]
  if not written:
    return

  def line(key: tuple[str, str], found: Sequence[Row]) -> Line:
    name, word = key
    index, before = readouts(results).index(name), word == "before"
    look = dict(
      label=f"{name}, {word} the fine-tune" if tuned else name,
      color=COLORS[index],
      marker=MARKERS[index],
      markerfacecolor="white" if before else None,
      linestyle=_DASHED if before else "-",
      linewidth=1.3 if before else 1.9,
      zorder=2 if before else 3,
    )
    return Line(found, "phase", "mean_percent", look)

  panels = [
    Panel(
      [
        line(key, found)
        for key, found in split(of, "readout", "moment").items()
      ],
      f"{classes} classes",
      "phase",
      "accuracy (%)" if classes == "old" else "",
      ticks=True,
    )
    for classes, of in split(rows, "classes").items()
  ]
  names = [line.look["label"] for line in panels[0].lines]
  shared = dict(sharex=True, sharey=True)
  place = dict(loc="outside upper left", ncols=4, fontsize=9)
  figure = plot([panels], (8.6, 3.5), names, **shared, **place)
  yield drawing("moments", figure, written, _balance(results, tuned))


def training_curves(run: Run) -> Iterator[Drawing]:
  """Loss and accuracy over the epochs of all phases and stages."""
  place = ("seed", "phase", "stage", "epoch")
  # If an epoch was repeated, its last record counts.
  epochs = list(
    {
      tuple(m[key] for key in place): m
      for m in run.metrics
      if all(key in m for key in place) and ("loss" in m or "accuracy" in m)
    }.values()
  )
  if not epochs:
    return
  stages = _stages(epochs)
  start, ends = _time_line(epochs, stages)
  rows = [
    {key: record[key] for key in place}
    | {
      "position": start[record["phase"], record["stage"]] + record["epoch"] + 1,
      "loss": record.get("loss"),
      "accuracy": record.get("accuracy"),
    }
    for record in epochs
  ]

  def lines(column: str) -> Iterator[Line]:
    for (seed, _, stage), found in split(rows, *place[:3]).items():
      points = [row for row in found if row[column] is not None]
      # The first two colours are the read-outs'.
      shades = COLORS[2:]
      look = dict(
        label=stage,
        color=shades[stages.index(stage) % len(shades)],
        alpha=1.0 if seed == rows[0]["seed"] else 0.35,
        linewidth=1.4,
        marker="." if len(points) == 1 else "",
      )
      if points:
        yield Line(points, "position", column, look)

  losses = list(lines("loss"))
  words = "epochs of all phases, one after the other"
  panels = [
    [Panel(losses, ylabel="loss")],
    [Panel(list(lines("accuracy")), xlabel=words, ylabel="accuracy (%)")],
  ]
  found = {line.look["label"] for line in losses}
  shown = [stage for stage in stages if stage in found]
  outside = dict(loc="outside upper right", ncols=len(shown) or 1)
  figure = plot(panels, (8.0, 4.8), shown, sharex=True, **outside)
  loss, accuracy = figure.axes
  loss.set_ylim(bottom=0)
  accuracy.yaxis.set_major_formatter(lambda value, _: f"{100 * value:g}")
  for axes in figure.axes:
    axes.grid(False, axis="x")
    _phase_bands(axes, ends, numbers=axes is loss)
  yield drawing("training_curves", figure, rows, _ending(epochs))


def exemplar_distances(run: Run) -> Iterator[Drawing]:
  """How far exemplars are from where they began, over the meta epochs."""
  rows = [row for stage in MOVING for row in _history(run, stage)]
  if not rows:
    return
  phases = sorted({row["phase"] for row in rows})
  shades = _shades(phases)
  panels, borders = [], []
  for stage, history in split(rows, "stage").items():
    parts, column = _parts(run, stage), len(_DISTANCES) * len(panels)
    means = _means(history, *_PLACE)
    lines = {quantity: [] for quantity in _DISTANCES}
    for (phase, part), points in split(means, "phase", "part").items():
      begin = part * len(points)
      # Each part begins with unmoved images, at distance zero.
      zero = dict.fromkeys(_DISTANCES, 0.0) | {"meta_epoch": 0}
      drawn = [
        {**point, "position": begin + point["meta_epoch"]}
        for point in [zero, *points]
      ]
      label = f"phase {phase}"
      look = dict(label=label, color=shades[phase], linewidth=1.5)
      for quantity, found in lines.items():
        found.append(Line(drawn, "position", quantity, look))
      borders += [(column + i, begin) for i in range(3) if part]
    order = f", one of {parts} parts after the other" if parts > 1 else ""
    panels.append(
      [
        Panel(
          lines[quantity],
          "" if panels else title,
          f"meta epochs{order}" if quantity == "cosine" else "",
          MOVING[stage][1] if quantity == "displacement" else "",
          small=True,
        )
        for quantity, title in _DISTANCES.items()
      ]
    )
  named = phases if len(phases) <= 11 else phases[:: 1 + len(phases) // 9]
  size = 8.6, 0.7 + 2.4 * len(panels)
  names = [f"phase {phase}" for phase in named]
  place = dict(loc="outside upper left", ncols=min(len(named), 6), fontsize=9)
  figure = plot(panels, size, names, sharex="row", **place)
  for index, x in borders:
    figure.axes[index].axvline(x, color="0.6", linewidth=0.8, linestyle=":")
  yield drawing("exemplar_distances", figure, rows, _moved(rows))


def comparison_distances(runs: Sequence[Run]) -> Iterator[Drawing]:
  """A column for each run that has learned exemplars, if there are several."""
  pairs = zip(runs, labels(runs), strict=True)
  shown = [pair for pair in pairs if measured(pair[0], "exemplars")]
  if len(shown) > 1:
    columns, titles = zip(*shown[:_MAX_COLUMNS], strict=True)
    yield distances("comparison_distances", columns, titles)


def distances(name: str, runs: Sequence[Run], titles: Sequence[str]) -> Drawing:
  """Distance to the start images by meta epoch: a line per phase, smoothed.

  Faint lines are what was measured, the mean over the seeds.

  Args:
    name: of the files.
    runs: with learned exemplars, a column each.
    titles: of the columns.
  """
  rows, ends = [], []
  panels = [[], []]
  for run, title in zip(runs, titles, strict=True):
    found = _smoothed(run, title)
    by_phase = split(found, "phase")
    rows += found
    ends.append(f"{found[-1]['cosine']:.2g} ({title})")
    for across, (quantity, text) in zip(panels, _COMPARED.items(), strict=True):
      lines = []
      for phase, shade in _shades(list(by_phase)).items():
        place = by_phase[phase], "meta_epoch"
        faint = dict(color=shade, linewidth=0.7, alpha=0.35)
        strong = dict(color=shade, linewidth=1.6)
        # Of many phases, the first and the last tell which way they go.
        if phase in (min(by_phase), max(by_phase)):
          strong["label"] = f"phase {phase}"
        lines.append(Line(*place, quantity, faint))
        lines.append(Line(*place, f"{quantity}_smoothed", strong))
      across.append(
        Panel(
          lines,
          shorten(title, 30) if across is panels[0] else "",
          "meta epochs" if across is panels[1] else "",
          "" if across else text,
          legend="lower right",
          small=True,
        )
      )
  size = 0.8 + 2.7 * len(runs), 5.0
  figure = plot(panels, size, sharey="row", sharex="col")
  text = f"At the end of the last phase, the cosine distance is {listed(ends)}."
  return drawing(name, figure, rows, text)


def measured(
  run: Run, stage: str
) -> dict[tuple[int, int], dict[str, list[float]]]:
  """(seed, phase) -> distances after each meta epoch, where recorded."""
  found = {}
  for record in run.results["runs"]:
    for phase in record["phases"]:
      history = phase.get("diagnostics", {}).get(stage, {})
      if all(history.get(name) for name in _DISTANCES):
        found[record["seed"], phase["phase"]] = history
  return found


def smooth(values: Sequence[float], rate: float = 0.8) -> list[float]:
  """Exponential moving average whose weights sum to one from the start.

  >>> smooth([0.0, 1.0], rate=0.5)  # (0.5 · 0 + 1) / (0.5 + 1)
  [0.0, 0.6666666666666666]

  Args:
    values: one after the other.
    rate: the weight of each value, compared with that of the next.
  """
  out, total, weight = [], 0.0, 0.0
  for value in values:
    total, weight = rate * total + value, rate * weight + 1
    out.append(total / weight)
  return out


def _parts(run: Run, stage: str) -> int:
  """An adjustment moves one part of the exemplars after the other (Eq. 10)."""
  if stage != "adjust":
    return 1
  return run.config.get("settings", {}).get("adjust_parts", 2)


def _history(run: Run, stage: str) -> Iterator[dict[str, Any]]:
  """Every measured distance: a row for each seed, phase, part and epoch."""
  parts = _parts(run, stage)
  for (seed, phase), history in measured(run, stage).items():
    epochs = len(history["cosine"]) // parts
    for index in range(parts * epochs):
      part, epoch = divmod(index, epochs)
      place = dict(zip(_PLACE, (phase, part, epoch + 1), strict=True))
      found = {name: history[name][index] for name in _DISTANCES}
      yield {"stage": stage, "seed": seed, **place, **found}


def _means(rows: Iterable[Row], *columns: str) -> list[dict[str, Any]]:
  """Distances by place, in its order: the mean over the seeds."""
  found = split(
    sorted(rows, key=lambda row: [row[c] for c in columns]), *columns
  )
  return [
    dict(zip(columns, place, strict=True))
    | {q: statistics.fmean(row[q] for row in seeds) for q in _DISTANCES}
    for place, seeds in found.items()
  ]


def _smoothed(run: Run, title: str) -> list[dict[str, Any]]:
  """By phase and meta epoch: mean distances of learned exemplars, smoothed."""
  rows = []
  for phase, means in split(
    _means(_history(run, "exemplars"), *_PLACE), "phase"
  ).items():
    # All begin at zero, which was not measured.
    values = {q: [0.0, *(row[q] for row in means)] for q in _COMPARED}
    smoothed = {q: [0.0, *smooth(found[1:])] for q, found in values.items()}
    for epoch in range(len(means) + 1):
      row = {"run": title, "phase": phase, "meta_epoch": epoch}
      for q in _COMPARED:
        row |= {q: values[q][epoch], f"{q}_smoothed": smoothed[q][epoch]}
      rows.append(row)
  return rows


def _shades(phases: Sequence[int]) -> dict[int, Any]:
  """A colour for each phase, dark to bright."""
  colors = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(phases)))
  return dict(zip(phases, colors, strict=True))


def _moved(rows: Sequence[Row]) -> str:
  """How far the exemplars of the last phase are in the end, by stage."""
  parts = []
  for stage, history in split(rows, "stage").items():
    seeds = split(history, "phase", "seed")
    last = max(phase for phase, _ in seeds)
    ends = [r[-1]["displacement"] for (p, _), r in seeds.items() if p == last]
    parts.append(
      f"exemplars {MOVING[stage][0]} in phase {last} end "
      f"{statistics.fmean(ends):.2g} grey levels a pixel from where they began"
    )
  return capital(f"{'; '.join(parts)}.")


def _accuracy_rows(run: Run, readout: str) -> list[dict[str, Any]]:
  """After each phase: mean, interval, and every seed by itself, in percent."""
  rows = []
  estimates = run.results["summary"][readout]["per_phase"]
  for index, estimate in enumerate(estimates):
    phase, half = run.results["runs"][0]["phases"][index], estimate.get("ci95")
    row = {name: phase[name] for name in ("phase", "classes_seen")}
    row["mean_percent"] = 100 * estimate["mean"]
    row["ci95_percent"] = None if half is None else 100 * half
    for seed in run.results["runs"]:
      accuracy = seed["phases"][index]["accuracy"][readout]
      row[f"seed_{seed['seed']}_percent"] = 100 * accuracy
    rows.append(row)
  return rows


def _looks(runs: Sequence[Run]) -> list[dict[str, Any]]:
  """A label, colour, marker and line for each run; no two alike."""
  looks, learners, bounds = [], 0, 0
  for run, name in zip(runs, labels(runs), strict=True):
    if _joint(run):
      # Nothing else is black, and nothing else is dashed.
      dash = ((0, (6, 2.5)), (0, (2, 2)))[bounds % 2]
      look = dict(color=_BOUND, linestyle=dash, linewidth=1.8)
      looks.append({"label": f"{name} (upper bound)", **look})
      bounds += 1
      continue
    turn, index = divmod(learners, len(_LEARNERS))
    look = dict(
      label=name,
      color=_LEARNERS[index],
      marker=MARKERS[learners % len(MARKERS)],
      markerfacecolor="white" if turn % 2 else _LEARNERS[index],
      linewidth=1.6,
    )
    looks.append(look)
    learners += 1
  return looks


def _joint(run: Run) -> bool:
  return run.results["method"] == "joint"


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


def _ending(epochs: Sequence[dict[str, Any]]) -> str:
  """How the training of the last phase ended, in the first seed."""
  first = epochs[0]["seed"]
  last = [r for r in epochs if r["seed"] == first and r["stage"] == "train"]
  if not last:
    return "No epoch of training was recorded."
  words = []
  if last[-1].get("loss") is not None:
    words.append(f"a loss of {last[-1]['loss']:.3g}")
  if last[-1].get("accuracy") is not None:
    words.append(f"{share(last[-1]['accuracy'])} of the training images right")
  return (
    f"Training of phase {last[-1]['phase']} ends with {' and '.join(words)}."
  )


def _stages(epochs: Sequence[dict[str, Any]]) -> list[str]:
  found = dict.fromkeys(record["stage"] for record in epochs)
  known = [stage for stage in _STAGES if stage in found]
  return known + [stage for stage in found if stage not in known]


def _time_line(
  epochs: Sequence[dict[str, Any]], stages: Sequence[str]
) -> tuple[dict[tuple[int, str], int], dict[int, int]]:
  """Where each stage begins and each phase ends when laid end to end."""
  length: dict[tuple[int, str], int] = {}
  for record in epochs:
    key = record["phase"], record["stage"]
    length[key] = max(length.get(key, 0), record["epoch"] + 1)
  start, ends, position = {}, {}, 0
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
