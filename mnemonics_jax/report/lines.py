"""Every figure that is made of lines: accuracy, training, distances.

A figure is a list of rows, which its CSV file holds, and lines drawn from them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
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
_MAX_COLUMNS = 4


class Panel(NamedTuple):
  """Rows as lines over one pair of axes.

  Attributes:
    rows: the points, each line's from left to right.
    line: columns that tell lines apart.
    x: column of the rows.
    y: columns of the rows, None leaves a gap; each with a function from a line's
      cells to keywords of `Axes.plot`. What has a label is in legends.
    half: column of half-widths, in percent, that are drawn as a ribbon.
    ribbon: opacity of the ribbon.
    title: above the panel.
    xlabel: below it.
    ylabel: beside it.
    ticks: all values of x are ticks, if there are few.
    legend: place of a legend inside the panel.
    small: small letters, whole numbers on x, and y from zero.
  """

  rows: Sequence[Row]
  line: Sequence[str]
  x: str
  y: Mapping[str, Callable[[Any], Row]]
  half: str | None = None
  ribbon: float = 0.16
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
    for key, rows in split(panel.rows, *panel.line).items():
      for column, look in panel.y.items():
        drawn = _line(axes, panel, rows, column, look(key))
        handles.setdefault(drawn.get_label(), drawn)
  # Limits hold for all axes that share them: only now is everything drawn.
  for panel, axes in places:
    _finish(axes, panel)
  if legend := list(legend):
    words = [shorten(label, 56) for label in legend]
    figure.legend([handles[label] for label in legend], words, **options)
  return figure


def _line(axes: Axes, panel: Panel, rows: Sequence[Row], y: str, look: Row):
  """Draws a line with its ribbon; returns what stands for it in a legend."""
  across = [row[panel.x] for row in rows]
  up = [np.nan if row[y] is None else row[y] for row in rows]
  (drawn,) = axes.plot(across, up, **look)
  half = [(panel.half and row[panel.half]) or 0.0 for row in rows]
  if any(half):
    low = np.maximum(np.subtract(up, half), 0.0)
    high = np.minimum(np.add(up, half), 100.0)
    place = {"color": look["color"], "alpha": panel.ribbon, "linewidth": 0}
    axes.fill_between(across, low, high, **place)
  return drawn


def _finish(axes: Axes, panel: Panel) -> None:
  letters: dict[str, Any] = {"fontsize": 9.5} if panel.small else {}
  if panel.title:
    axes.set_title(panel.title, **letters)
  if panel.xlabel:
    axes.set_xlabel(panel.xlabel, **letters)
  if panel.ylabel:
    axes.set_ylabel(panel.ylabel, **letters)
  places = {row[panel.x] for row in panel.rows} if panel.ticks else set()
  if 0 < len(places) <= _MOST_TICKS:
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
  return Panel(
    rows,
    (by,),
    "classes_seen",
    {"mean_percent": lambda name: {"zorder": 3, **looks[name]}},
    "ci95_percent",
    0.16 if len(looks) < 6 else 0.09,
    xlabel="classes learned so far",
    ticks=True,
    **options,
  )


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
    last = {
      name: run.results["summary"][readout]["per_phase"][-1]["mean"]
      for name, run in shown.items()
    }
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
  names = readouts(results)
  tuned = any(finetune_table(results, name) for name in names)
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
    for name in names
    for word, moment in moments.items()
    for phase in results["runs"][0]["phases"]
    for mean in [moment_mean(results, phase["phase"], moment, name, classes)]
  ]
  written = [row for row in rows if row["mean_percent"] is not None]
  if not written:
    return

  def label(key: tuple[str, str]) -> str:
    return f"{key[0]}, {key[1]} the fine-tune" if tuned else key[0]

  def look(key: tuple[str, str]) -> Row:
    index, before = names.index(key[0]), key[1] == "before"
    return dict(
      label=label(key),
      color=COLORS[index],
      marker=MARKERS[index],
      markerfacecolor="white" if before else None,
      linestyle=_DASHED if before else "-",
      linewidth=1.3 if before else 1.9,
      zorder=2 if before else 3,
    )

  panels = [
    Panel(
      of,
      ("readout", "moment"),
      "phase",
      {"mean_percent": look},
      title=f"{classes} classes",
      xlabel="phase",
      ylabel="accuracy (%)" if classes == "old" else "",
      ticks=True,
    )
    for classes, of in split(rows, "classes").items()
  ]
  legend = map(label, itertools.product(names, moments))
  shared = dict(sharex=True, sharey=True)
  place = dict(loc="outside upper left", ncols=4, fontsize=9)
  figure = plot([panels], (8.6, 3.5), legend, **shared, **place)
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
  found = dict.fromkeys(record["stage"] for record in epochs)
  known = [stage for stage in _STAGES if stage in found]
  stages = [*known, *(stage for stage in found if stage not in known)]
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

  def panel(column: str, **options: Any) -> Panel:
    points = [row for row in rows if row[column] is not None]
    alone = {k for k, of in split(points, *place[:3]).items() if len(of) == 1}

    def look(key: tuple[int, int, str]) -> Row:
      shades = COLORS[2:]  # The first two are the read-outs'.
      return dict(
        label=key[2],
        color=shades[stages.index(key[2]) % len(shades)],
        alpha=1.0 if key[0] == rows[0]["seed"] else 0.35,
        linewidth=1.4,
        marker="." if key in alone else "",
      )

    return Panel(points, place[:3], "position", {column: look}, **options)

  words = "epochs of all phases, one after the other"
  losses = panel("loss", ylabel="loss")
  below = panel("accuracy", xlabel=words, ylabel="accuracy (%)")
  shown = [s for s in stages if any(row["stage"] == s for row in losses.rows)]
  outside = dict(loc="outside upper right", ncols=len(shown) or 1)
  figure = plot([[losses], [below]], (8.0, 4.8), shown, sharex=True, **outside)
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
  look = lambda key: dict(
    label=f"phase {key[0]}", color=shades[key[0]], linewidth=1.5
  )
  panels, borders = [], []
  for stage, history in split(rows, "stage").items():
    parts, drawn = _parts(run, stage), []
    for (phase, part), points in split(
      _means(history), "phase", "part"
    ).items():
      begin = part * len(points)
      # Each part begins with unmoved images, at distance zero.
      place = {"phase": phase, "part": part, "meta_epoch": 0}
      zero = place | dict.fromkeys(_DISTANCES, 0.0)
      drawn += [
        {**point, "position": begin + point["meta_epoch"]}
        for point in [zero, *points]
      ]
      if part:
        borders.append((len(panels), begin))
    order = f", one of {parts} parts after the other" if parts > 1 else ""
    panels.append(
      [
        Panel(
          drawn,
          ("phase", "part"),
          "position",
          {quantity: look},
          title="" if panels else title,
          xlabel=f"meta epochs{order}" if quantity == "cosine" else "",
          ylabel=MOVING[stage][1] if quantity == "displacement" else "",
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
  for row, x in borders:
    for axes in figure.axes[3 * row : 3 * row + 3]:
      axes.axvline(x, color="0.6", linewidth=0.8, linestyle=":")
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
    rows += found
    ends.append(f"{found[-1]['cosine']:.2g} ({title})")
    shades = _shades(list(split(found, "phase")))
    faint = lambda phase, shades=shades: dict(
      color=shades[phase], linewidth=0.7, alpha=0.35
    )
    # Of many phases, the first and the last tell which way they go.
    strong = lambda phase, shades=shades: dict(
      **(
        {"label": f"phase {phase}"}
        if phase in (min(shades), max(shades))
        else {}
      ),
      color=shades[phase],
      linewidth=1.6,
    )
    for across, (quantity, text) in zip(panels, _COMPARED.items(), strict=True):
      columns = {quantity: faint, f"{quantity}_smoothed": strong}
      across.append(
        Panel(
          found,
          ("phase",),
          "meta_epoch",
          columns,
          title=shorten(title, 30) if across is panels[0] else "",
          xlabel="meta epochs" if across is panels[1] else "",
          ylabel="" if across else text,
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

  The newest value weighs 1, the one before it `rate`, then `rate`² and so on.
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
      place = {"phase": phase, "part": part, "meta_epoch": epoch + 1}
      found = {name: history[name][index] for name in _DISTANCES}
      yield {"stage": stage, "seed": seed, **place, **found}


def _means(rows: Iterable[Row]) -> list[dict[str, Any]]:
  """Distances by phase, part and epoch, in order: the mean over the seeds."""
  place = ("phase", "part", "meta_epoch")
  found = split(rows, *place)
  return [
    dict(zip(place, key, strict=True))
    | {q: statistics.fmean(row[q] for row in found[key]) for q in _DISTANCES}
    for key in sorted(found)
  ]


def _smoothed(run: Run, title: str) -> list[dict[str, Any]]:
  """By phase and meta epoch: mean distances of learned exemplars, smoothed."""
  rows = []
  for phase, means in split(
    _means(_history(run, "exemplars")), "phase"
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
  looks = []
  learners, bounds = itertools.count(), itertools.count()
  for run, name in zip(runs, labels(runs), strict=True):
    if _joint(run):
      # Nothing else is black, and nothing else is dashed.
      dash = ((0, (6, 2.5)), (0, (2, 2)))[next(bounds) % 2]
      look = dict(color=_BOUND, linestyle=dash, linewidth=1.8)
      looks.append({"label": f"{name} (upper bound)", **look})
      continue
    number = next(learners)
    turn, index = divmod(number, len(_LEARNERS))
    look = dict(
      label=name,
      color=_LEARNERS[index],
      marker=MARKERS[number % len(MARKERS)],
      markerfacecolor="white" if turn % 2 else _LEARNERS[index],
      linewidth=1.6,
    )
    looks.append(look)
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
