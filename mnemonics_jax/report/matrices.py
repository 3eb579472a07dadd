"""Matrices: accuracy by phase and class group, and who is taken for whom."""

from collections.abc import Iterator, Sequence

from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
import numpy as np

from mnemonics_jax.report.drawing import INK, Drawing, number, shorten
from mnemonics_jax.report.tables import readouts
from mnemonics_jax.report.words import capital, count, share
from mnemonics_jax.runs.finished import Run

_CMAP = "Blues"


def accuracy_matrices(run: Run) -> Iterator[Drawing]:
  """Row: after a phase. Column: the classes that a phase brought."""
  phases = len(run.results["classes_per_phase"])
  for name in readouts(run.results):
    matrix = np.full((phases, phases), np.nan)
    for row in range(phases):
      groups = [r["phases"][row]["by_group"][name] for r in run.results["runs"]]
      matrix[row, : row + 1] = 100 * np.mean(np.array(groups, float), axis=0)
    yield _accuracy_matrix(run, name, matrix)


def _accuracy_matrix(run: Run, readout: str, matrix: np.ndarray) -> Drawing:
  phases = len(matrix)
  figure = Figure(figsize=(4.8, 3.9), layout="constrained")
  axes = figure.subplots()
  low = min(10 * np.floor(np.nanmin(matrix) / 10), 90.0)
  image = axes.imshow(matrix, cmap=_CMAP, vmin=low, vmax=100)
  if phases <= 12:
    digits = 1 if phases <= 7 else 0
    for row, column in np.ndindex(matrix.shape):
      value = matrix[row, column]
      axes.text(
        column,
        row,
        "" if np.isnan(value) else f"{value:.{digits}f}",
        ha="center",
        va="center",
        fontsize=9 if phases <= 7 else 8,
        color="white" if value > low + 0.6 * (100 - low) else INK,
      )
  every = 1 + phases // 16
  ticks = range(0, phases, every)
  axes.set_xticks(ticks, [str(t) for t in ticks])
  axes.set_yticks(ticks, [str(t) for t in ticks])
  axes.set_xlabel("classes that came in phase")
  axes.set_ylabel("after phase")
  axes.set_title(f"read-out {readout}")
  axes.grid(False)
  axes.spines[:].set_visible(False)
  axes.tick_params(length=0)
  figure.colorbar(image, ax=axes, shrink=0.8, label="accuracy (%)")
  header = ["after_phase", "classes_of_phase", "classes", "accuracy_percent"]
  groups = run.results["classes_per_phase"]
  rows = [
    [row, column, groups[column], number(matrix[row, column])]
    for row, column in zip(*np.tril_indices(phases), strict=True)
    if not np.isnan(matrix[row, column])
  ]
  return Drawing(
    f"accuracy_matrix_{readout}", figure, header, rows, _losses(readout, matrix)
  )


def _losses(readout: str, matrix: np.ndarray) -> str:
  """What is left of the first classes, and which are known least."""
  first, end = matrix[0, 0] / 100, matrix[-1] / 100
  if len(matrix) == 1 or np.isnan([first, end[0]]).any():
    return f"Accuracy of {readout} by the phase in which classes came."
  worst = int(np.nanargmin(end))
  text = (
    f"On the classes of phase 0, {readout} has {share(first)} when they are new "
    f"and {share(end[0])} at the end"
  )
  if worst:
    text += f"; least at the end on those of phase {worst}, {share(end[worst])}"
  return text + "."


def confusion_matrices(run: Run) -> Iterator[Drawing]:
  """Counts over all seeds after the last phase, one matrix per read-out."""
  last = len(run.results["classes_per_phase"]) - 1
  saved = [run.arrays(seed, last) for seed in run.results["seeds"]]
  for name in readouts(run.results):
    key = f"confusion/final/{name}"
    counts = [arrays[key] for arrays in saved if key in arrays]
    if counts:
      yield _confusion_matrix(run, name, np.sum(counts, axis=0))


def _confusion_matrix(run: Run, readout: str, counts: np.ndarray) -> Drawing:
  n = len(counts)
  names = run.results["class_names"][:n]
  totals = counts.sum(axis=1, keepdims=True)
  shares = 100 * counts / np.maximum(totals, 1)
  figure = Figure(figsize=(5.2, 4.6), layout="constrained")
  axes = figure.subplots()
  # The square root brings out the rare confusions beside the diagonal.
  norm = PowerNorm(0.5, vmin=0, vmax=100)
  image = axes.imshow(shares, cmap=_CMAP, norm=norm, interpolation="nearest")
  borders = np.cumsum(run.results["classes_per_phase"])
  thin = {"linewidth": 0.7 if n <= 25 else 0.5, "alpha": 0.5}
  for border in borders[borders < n]:
    axes.axhline(border - 0.5, color=INK, **thin)
    axes.axvline(border - 0.5, color=INK, **thin)
  if n <= 25:
    short = [shorten(name, 12) for name in names]
    turn = 90 if max(map(len, short)) > 3 else 0
    axes.set_xticks(range(n), short, rotation=turn, fontsize=8)
    axes.set_yticks(range(n), short, fontsize=8)
    kind = "class"
  else:
    middles = borders - np.diff(borders, prepend=0) / 2 - 0.5
    ticks = [0]
    for phase, middle in enumerate(middles):
      if middle - middles[ticks[-1]] >= n / 18:  # Room for the last label.
        ticks.append(phase)
    axes.set_xticks(middles[ticks], [str(t) for t in ticks])
    axes.set_yticks(middles[ticks], [str(t) for t in ticks])
    kind = "class, by the phase it came in"
  if n <= 12:
    for row, column in zip(*np.nonzero(counts), strict=True):
      value = shares[row, column]
      axes.text(
        column,
        row,
        f"{value:.0f}",
        ha="center",
        va="center",
        fontsize=8,
        color="white" if value > 40 else INK,
      )
  axes.set_xlabel(f"predicted {kind}")
  axes.set_ylabel(f"true {kind}")
  axes.set_title(f"read-out {readout}")
  axes.grid(False)
  axes.tick_params(length=0)
  figure.colorbar(
    image,
    ax=axes,
    shrink=0.8,
    label="share of the true class (%)",
    ticks=[0, 1, 5, 20, 50, 100],
  )
  header = ["true_index", "true_class", *names]
  rows = [[i, names[i], *map(int, counts[i])] for i in range(n)]
  return Drawing(
    f"confusion_{readout}", figure, header, rows, _errors(names, shares)
  )


def _errors(names: Sequence[str], shares: np.ndarray) -> str:
  """The most frequent confusion, and how many classes are never predicted."""
  errors = shares * (1 - np.eye(len(names)))
  true, taken = divmod(int(errors.argmax()), len(names))
  if not errors.any():
    return "No test image is taken for another class."
  text = (
    f"Most frequent confusion: {errors[true, taken]:.0f}\u00a0% of "
    f"{shorten(names[true])} are taken for {shorten(names[taken])}."
  )
  never = int((shares.sum(axis=0) == 0).sum())
  if never:
    verb = "is" if never == 1 else "are"
    text += f" {capital(count(never, 'class'))} {verb} never predicted."
  return text
