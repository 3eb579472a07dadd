"""Loss and accuracy over the epochs of all phases."""

from collections.abc import Iterator, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from mnemonics_jax.report.drawing import COLORS, FAINT, Drawing, number
from mnemonics_jax.report.words import share
from mnemonics_jax.runs.finished import Run

_STAGE_ORDER = ("train", "exemplars", "adjust", "finetune")
# The first two belong to the read-outs wherever a page shows them.
_COLORS = COLORS[2:]


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
          color=_COLORS[stages.index(stage) % len(_COLORS)],
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
  yield Drawing("training_curves", figure, header, rows, _ending(epochs))


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
