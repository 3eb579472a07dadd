"""How exemplars change while they are learned: images and distances."""

from collections.abc import Iterator, Mapping, Sequence
import statistics
from typing import NamedTuple

import matplotlib
from matplotlib.figure import Figure
import numpy as np

from mnemonics_jax.report import images
from mnemonics_jax.report.drawing import INK, Drawing, number, shorten
from mnemonics_jax.report.words import capital
from mnemonics_jax.runs.finished import Run

# Stages that change images: what it does to them, and the title of its rows.
STAGES = {
  "exemplars": ("learned", "learning new exemplars"),
  "adjust": ("adjusted", "adjusting old exemplars"),
}
_QUANTITIES = {
  "displacement": "mean change of a pixel (grey levels)",
  "cosine": "cosine distance of features",
  "euclidean": "Euclidean distance of features",
}
_GAINS = (100, 50, 20, 10, 5, 2, 1)
_GREY = 128
_GAP = 2


class Change(NamedTuple):
  """Some exemplars of a phase before and after a stage.

  Attributes:
    phase: the phase.
    labels: their classes, in the learned order.
    before: uint8 images [n, h, w, c] as the stage found them.
    after: the same as the stage left them.
  """

  phase: int
  labels: np.ndarray
  before: np.ndarray
  after: np.ndarray


def load(run: Run, stage: str) -> list[Change]:
  """What the first seed saved of a stage, phase by phase."""
  found = []
  for phase in range(len(run.results["classes_per_phase"])):
    arrays = run.arrays(run.results["seeds"][0], phase, f"changed/{stage}/")
    names = [f"changed/{stage}/{n}" for n in ("labels", "before", "after")]
    if all(name in arrays and len(arrays[name]) for name in names):
      found.append(Change(phase, *(arrays[name] for name in names)))
  return found


def amplification(changes: Sequence[Change]) -> int:
  """The factor that makes changes visible, the same for all phases.

  It fits 99 of 100 pixels into the range of an image; the rest is cut off.
  """
  moved = np.concatenate(
    [np.abs(_signed(c.before, c.after)).ravel() for c in changes]
  )
  most = np.percentile(moved, 99) or moved.max()
  return next((g for g in _GAINS if most and g * most < _GREY), 1)


def difference(before: np.ndarray, after: np.ndarray, gain: int) -> np.ndarray:
  """after − before, times `gain`, around grey: grey means no change."""
  shifted = _GREY + gain * _signed(before, after)
  return np.clip(shifted, 0, 255).astype(np.uint8)


def grids(run: Run) -> Iterator[Drawing]:
  """One sheet per stage and phase: before, after, difference, by class."""
  for stage in STAGES:
    changes = load(run, stage)
    gain = amplification(changes) if changes else 1
    for change in changes:
      yield _sheet(run, stage, change, gain)


def sheet_name(stage: str, phase: int) -> str:
  return f"exemplars_{STAGES[stage][0]}_{phase:02d}"


def distances(run: Run) -> Iterator[Drawing]:
  """How far exemplars are from where they began, over the meta epochs."""
  histories = {stage: measured(run, stage) for stage in STAGES}
  histories = {stage: found for stage, found in histories.items() if found}
  if not histories:
    return
  phases = sorted({phase for found in histories.values() for _, phase in found})
  shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.88, len(phases)))
  figure = Figure(
    figsize=(8.6, 0.7 + 2.4 * len(histories)), layout="constrained"
  )
  panels = figure.subplots(
    len(histories), len(_QUANTITIES), squeeze=False, sharex="row"
  )
  drawn, rows = {}, []
  for row, (stage, found) in zip(panels, histories.items(), strict=True):
    parts = _parts(run, stage)
    for axes, name in zip(row, _QUANTITIES, strict=True):
      for phase, shade in zip(phases, shades, strict=True):
        seeds = [
          history[name] for (_, p), history in found.items() if p == phase
        ]
        if not seeds:
          continue
        mean = [statistics.fmean(values) for values in zip(*seeds, strict=True)]
        epochs = len(mean) // parts
        for part in range(parts):
          begin = part * epochs
          # Each part begins with unmoved images, at distance zero.
          (drawn[phase],) = axes.plot(
            range(begin, begin + epochs + 1),
            [0.0, *mean[begin : begin + epochs]],
            color=shade,
            linewidth=1.5,
          )
          if part:
            axes.axvline(begin, color="0.6", linewidth=0.8, linestyle=":")
      axes.set_ylim(bottom=0)
      axes.margins(x=0.02)
      axes.xaxis.get_major_locator().set_params(integer=True)
      axes.tick_params(labelsize=8.5)
    row[0].set_ylabel(STAGES[stage][1], fontsize=9.5)
    order = f", one of {parts} parts after the other" if parts > 1 else ""
    row[1].set_xlabel(f"meta epochs{order}", fontsize=9.5)
    rows += [
      [stage, seed, phase, part, epoch + 1]
      + [number(history[q][part * epochs + epoch]) for q in _QUANTITIES]
      for (seed, phase), history in found.items()
      for epochs in [len(history["cosine"]) // parts]
      for part in range(parts)
      for epoch in range(epochs)
    ]
  for axes, title in zip(panels[0], _QUANTITIES.values(), strict=True):
    axes.set_title(title, fontsize=9.5)
  named = phases if len(phases) <= 11 else phases[:: 1 + len(phases) // 9]
  figure.legend(
    [drawn[phase] for phase in named],
    [f"phase {phase}" for phase in named],
    loc="outside upper left",
    ncols=min(len(named), 6),
    fontsize=9,
  )
  header = ["stage", "seed", "phase", "part", "meta_epoch", *_QUANTITIES]
  text = f"{'; '.join(_moved(stage, h) for stage, h in histories.items())}."
  yield Drawing("exemplar_distances", figure, header, rows, capital(text))


def _moved(stage: str, found: Mapping[tuple[int, int], Mapping]) -> str:
  """How far the exemplars of the last phase are in the end."""
  last = max(phase for _, phase in found)
  ends = [
    h["displacement"][-1] for (_, phase), h in found.items() if phase == last
  ]
  return (
    f"exemplars {STAGES[stage][0]} in phase {last} end "
    f"{statistics.fmean(ends):.2g} grey levels a pixel from where they began"
  )


def _signed(before: np.ndarray, after: np.ndarray) -> np.ndarray:
  return after.astype(np.int32) - before.astype(np.int32)


def _parts(run: Run, stage: str) -> int:
  """An adjustment moves one part of the exemplars after the other (Eq. 10)."""
  if stage != "adjust":
    return 1
  return run.config.get("settings", {}).get("adjust_parts", 2)


def measured(
  run: Run, stage: str
) -> dict[tuple[int, int], dict[str, list[float]]]:
  """(seed, phase) -> distances after each meta epoch, where recorded."""
  found = {}
  for record in run.results["runs"]:
    for phase in record["phases"]:
      history = phase.get("diagnostics", {}).get(stage, {})
      if all(history.get(name) for name in _QUANTITIES):
        found[record["seed"], phase["phase"]] = history
  return found


def _sheet(run: Run, stage: str, change: Change, gain: int) -> Drawing:
  """A row per class; its exemplars beside each other, three pictures each."""
  height, width = images.sides(*change.before.shape[1:3])
  shown = (
    change.before,
    change.after,
    difference(change.before, change.after, gain),
  )
  shown = [images.resize(pictures, (height, width)) for pictures in shown]
  classes = np.unique(change.labels)
  members = [np.flatnonzero(change.labels == label) for label in classes]
  group = 3 * (width + _GAP) + 3 * _GAP
  columns = max(map(len, members))
  # Letters grow with the images, as the page shows all sheets at one width;
  # names of all classes have room, so that no phase differs from the others.
  names = [shorten(name, 16) for name in run.results["class_names"]]
  scale = max((group * columns + 60) / 260, 1.0)
  left = round(scale * max(6.2 * max(map(len, names)) + 4, 56))
  top, step = round(14 * scale), height + 3 * _GAP
  canvas = np.zeros(
    (top + step * len(classes), left + group * columns, 4), np.uint8
  )
  size = canvas.shape[1] / 100, canvas.shape[0] / 100
  figure = Figure(figsize=size, dpi=200 if max(size) < 10 else 100)
  axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
  axes.set_axis_off()
  large, small = ({"fontsize": s * scale, "color": INK} for s in (7, 6))
  axes.text(0, top - 4, f"phase {change.phase}", **large)
  for column in range(columns):
    for index, word in enumerate(("before", "after", f"×{gain}")):
      x = left + column * group + index * (width + _GAP) + width / 2
      axes.text(x, top - 4, word, ha="center", **small)
  rows = []
  for row, (label, indices) in enumerate(zip(classes, members, strict=True)):
    name, y = run.results["class_names"][label], top + row * step
    axes.text(0, y + height / 2, names[label], va="center", **large)
    for column, index in enumerate(indices):
      for place, pictures in enumerate(shown):
        x = left + column * group + place * (width + _GAP)
        canvas[y : y + height, x : x + width, :3] = pictures[index]
        canvas[y : y + height, x : x + width, 3] = 255
      moved = np.abs(_signed(change.before[index], change.after[index]))
      moves = number(float(moved.mean())), int(moved.max())
      rows.append([int(label), name, column, *moves, gain])
  axes.imshow(canvas, interpolation="nearest")
  header = ["class_index", "class", "image", "mean_change", "max_change"]
  return Drawing(
    sheet_name(stage, change.phase),
    figure,
    [*header, "amplification"],
    rows,
    extent(change),
    exact=True,
  )


def extent(change: Change) -> str:
  """How much the images of a sheet have changed, in words."""
  moved = np.abs(_signed(change.before, change.after))
  return (
    f"Phase {change.phase}: pixels changed by {moved.mean():.2g} grey levels on "
    f"average and by {moved.max()} at most."
  )


class Strip(NamedTuple):
  """An image before and after, and the difference.

  Attributes:
    pixels: the three side by side, RGBA.
    moved: grey levels by which pixels have changed, on average.
  """

  pixels: np.ndarray
  moved: float


def strips(change: Change, gain: int, most: int) -> dict[int, list[Strip]]:
  """By class: a strip of each image.

  Args:
    change: some exemplars.
    gain: amplifies the difference.
    most: how many classes, evenly spaced.
  """
  kinds = [
    images.resize(pictures, images.reduced(*pictures.shape[1:3]))
    for pictures in (
      change.before,
      change.after,
      difference(change.before, change.after, gain),
    )
  ]
  moved = np.abs(_signed(change.before, change.after)).mean((1, 2, 3))
  return {
    label: [
      Strip(
        images.tile(np.stack([kind[index] for kind in kinds]), gap=1),
        float(moved[index]),
      )
      for index in np.flatnonzero(change.labels == label)
    ]
    for label in evenly(np.unique(change.labels).tolist(), most)
  }


def evenly(items: Sequence, most: int) -> list:
  """At most so many of the items, from the first to the last."""
  places = np.linspace(0, len(items) - 1, min(len(items), most))
  return [items[i] for i in places.round().astype(int)]
