"""How far exemplars of several runs move, side by side (Figure S2)."""

from collections.abc import Iterator, Sequence
import statistics

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
import numpy as np

from mnemonics_jax.report import changes
from mnemonics_jax.report.drawing import Drawing, number, shorten
from mnemonics_jax.report.labels import labels
from mnemonics_jax.report.words import listed
from mnemonics_jax.runs.finished import Run

_QUANTITIES = {
  "cosine": "cosine distance",
  "euclidean": "Euclidean distance",
}
_STAGE = "exemplars"
_MAX_COLUMNS = 4
_RATE = 0.8


def comparison_distances(runs: Sequence[Run]) -> Iterator[Drawing]:
  """A column for each run that has learned exemplars, if there are several."""
  names = labels(runs)
  pairs = list(zip(runs, names, strict=True))
  shown = [pair for pair in pairs if changes.measured(pair[0], _STAGE)]
  if len(shown) > 1:
    shown = shown[:_MAX_COLUMNS]
    columns = [run for run, _ in shown]
    titles = [name for _, name in shown]
    yield side_by_side("comparison_distances", columns, titles)


def side_by_side(
  name: str, runs: Sequence[Run], titles: Sequence[str]
) -> Drawing:
  """Distance to the start images by meta epoch: a line per phase, smoothed.

  Faint lines are what was measured, the mean over the seeds.

  Args:
    name: of the files.
    runs: with learned exemplars, a column each.
    titles: of the columns.
  """
  figure = Figure(figsize=(0.8 + 2.7 * len(runs), 5.0), layout="constrained")
  panels = figure.subplots(
    len(_QUANTITIES), len(runs), squeeze=False, sharey="row", sharex="col"
  )
  rows = []
  for column, run, title in zip(panels.T, runs, titles, strict=True):
    column[0].set_title(shorten(title, 30), fontsize=9.5)
    column[-1].set_xlabel("meta epochs", fontsize=9.5)
    by_phase = _means(run)
    shades = matplotlib.colormaps["viridis"](
      np.linspace(0, 0.88, len(by_phase))
    )
    for (phase, means), shade in zip(by_phase.items(), shades, strict=True):
      # All begin at zero, which was not measured.
      smoothed = {q: [0.0, *smooth(v[1:])] for q, v in means.items()}
      # Of many phases, the first and the last tell which way they go.
      ends = phase in (min(by_phase), max(by_phase))
      label = f"phase {phase}" if ends else None
      for axes, quantity in zip(column, _QUANTITIES, strict=True):
        _line(axes, means[quantity], smoothed[quantity], shade, label)
      rows += [
        [title, phase, epoch]
        + [number(v[q][epoch]) for q in _QUANTITIES for v in (means, smoothed)]
        for epoch in range(len(means["cosine"]))
      ]
  for axes in panels.flat:
    _finish(axes)
  for axes, text in zip(panels[:, 0], _QUANTITIES.values(), strict=True):
    axes.set_ylabel(text, fontsize=9.5)
  header = ["run", "phase", "meta_epoch"]
  header += [f"{q}{kind}" for q in _QUANTITIES for kind in ("", "_smoothed")]
  return Drawing(name, figure, header, rows, _ends(runs, titles))


def _ends(runs: Sequence[Run], titles: Sequence[str]) -> str:
  """How far the exemplars of the last phase are in the end, by run."""
  ends = []
  for run, title in zip(runs, titles, strict=True):
    last = [*_means(run).values()][-1]["cosine"][-1]
    ends.append(f"{last:.2g} ({title})")
  return f"At the end of the last phase, the cosine distance is {listed(ends)}."


def smooth(values: Sequence[float], rate: float = _RATE) -> list[float]:
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


def _means(run: Run) -> dict[int, dict[str, list[float]]]:
  """By phase: the mean over seeds of each quantity, from epoch 0 on."""
  found = changes.measured(run, _STAGE)
  out = {}
  for phase in sorted({phase for _, phase in found}):
    seeds = [history for (_, p), history in found.items() if p == phase]
    out[phase] = {
      # Images begin unmoved.
      quantity: [0.0]
      + [
        statistics.fmean(values)
        for values in zip(*(h[quantity] for h in seeds), strict=True)
      ]
      for quantity in _QUANTITIES
    }
  return out


def _line(axes: Axes, means, smoothed, shade, label: str | None) -> None:
  axes.plot(means, color=shade, linewidth=0.7, alpha=0.35)
  axes.plot(smoothed, color=shade, linewidth=1.6, label=label)


def _finish(axes: Axes) -> None:
  axes.set_ylim(bottom=0)
  axes.margins(x=0.02)
  axes.xaxis.set_major_locator(MaxNLocator(integer=True))
  axes.tick_params(labelsize=8.5)
  axes.legend(fontsize=8, loc="lower right")
