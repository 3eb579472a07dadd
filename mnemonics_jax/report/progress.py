"""Where a run is: a live display on a terminal, plain lines elsewhere."""

from collections.abc import Mapping, Sequence
import sys
import time
from typing import TextIO

from mnemonics_jax.types import StepReport

_REFRESH = 0.1  # Seconds between updates of the live display.


class Progress:
  """Context manager whose value is a `Report` for the training loops.

  On a terminal it draws phases, epochs and steps with the time left. Anywhere
  else it prints one line per completed epoch, and nothing in between:

    with Progress(phases=6, label="seed 0") as progress:
      run(..., report=progress)
      progress.say("memory: 200 images")

  Args:
    phases: number of phases including the base phase.
    label: what to call this run, for example "seed 0".
    work: expected work of each phase in any unit, for example its number of
      training steps. With it, the time left for all phases is shown too.
    stream: where to write, by default standard output.
  """

  def __init__(
    self,
    phases: int,
    label: str = "",
    *,
    work: Sequence[float] | None = None,
    stream: TextIO | None = None,
  ):
    self._phases = phases
    self._label = label
    self._work = work
    self._stream = stream
    self._display = None
    self._tasks = []
    self._drawn = 0.0
    self._stage = None  # The (phase, stage) that is running, ...
    self._stage_began = self._epoch_began = 0.0  # ... and since when.
    self._stage_first = 0.0  # Epochs it had behind it when first heard of.
    self._began: tuple[float, float] | None = None  # Time and work done then.

  def __enter__(self) -> "Progress":
    self._stream = self._stream or sys.stdout
    self._epoch_began = time.monotonic()
    if self._stream.isatty():
      self._display, self._tasks = _live_display(self._stream, self._phases)
      self._display.start()
    return self

  def __exit__(self, *_: object) -> None:
    if self._display:
      self._display.stop()
      self._display = None

  def __call__(self, report: StepReport) -> None:
    now = time.monotonic()
    if self._stage != (report.phase, report.stage):
      self._stage = report.phase, report.stage
      # The first report may come after the first steps: those began when the
      # stage before ended.
      self._stage_began = self._epoch_began
      self._stage_first = report.epoch
    if self._display:
      if report.metrics is not None or now - self._drawn >= _REFRESH:
        self._drawn = now
        self._draw(report, now)
    elif report.metrics is not None:
      self.say(self._line(report, now - self._epoch_began))
    if report.metrics is not None:
      self._epoch_began = now

  def say(self, text: str) -> None:
    """Prints a message above the live display, or as a plain line."""
    if self._display:
      self._display.console.print(text, markup=False, highlight=False)
    else:
      print(text, file=self._stream or sys.stdout, flush=True)

  def _line(self, report: StepReport, seconds: float) -> str:
    metrics = dict(report.metrics or {})
    seconds = metrics.pop("seconds", seconds)
    parts = [
      self._label,
      f"phase {report.phase}/{self._phases - 1}",
      report.stage,
      f"epoch {report.epoch + 1}/{report.epochs}",
      format_metrics(metrics),
      f"{seconds:.1f} s",
    ]
    return " · ".join(part for part in parts if part)

  def _draw(self, report: StepReport, now: float) -> None:
    assert self._display
    phase_task, epoch_task, step_task = self._tasks
    within = 1.0 if report.metrics is not None else 0.0
    if report.steps and not within:
      within = min(report.step / report.steps, 1.0)
    epochs = report.epoch + within
    share = epochs / report.epochs if report.epochs else 0.0
    left = _time_left(
      now - self._stage_began,
      epochs - self._stage_first,
      report.epochs - epochs,
    )
    update = self._display.update
    update(
      phase_task,
      description=f"{self._label} · phase" if self._label else "phase",
      completed=report.phase,
      total=max(self._phases - 1, 1),
      count=f"{report.phase}/{self._phases - 1}",
      info=self._run_left(report, share, now),
    )
    update(
      epoch_task,
      description=f"{report.stage} · epoch",
      completed=epochs,
      total=report.epochs,
      count=f"{min(report.epoch + 1, report.epochs)}/{report.epochs}",
      info=left and f"{left} left in this stage",
    )
    update(
      step_task,
      completed=report.step,
      total=report.steps,
      count=f"{report.step}/{report.steps}",
    )
    if report.metrics is not None:
      metrics = {k: v for k, v in report.metrics.items() if k != "seconds"}
      update(step_task, info=format_metrics(metrics))

  def _run_left(self, report: StepReport, share: float, now: float) -> str:
    if not self._work:
      return ""
    # Later stages of a phase do not count as work: the rate learns to include
    # them as phases complete.
    share = share if report.stage == "train" else 1.0
    done = sum(self._work[: report.phase])
    done += self._work[report.phase] * min(share, 1.0)
    if self._began is None:
      self._began = self._epoch_began, done
    since, done_then = self._began
    left = _time_left(now - since, done - done_then, sum(self._work) - done)
    return left and f"{left} left in all"


def format_metrics(metrics: Mapping[str, float]) -> str:
  """`loss 0.412 · accuracy 87.5 %`; the rest only where these are missing."""

  def one(name: str) -> str:
    if "accuracy" in name:
      return f"{name} {100 * metrics[name]:.1f} %"
    return f"{name} {metrics[name]:.3f}"

  main = [name for name in ("loss", "accuracy") if name in metrics]
  return " · ".join(one(name) for name in main or metrics)


def format_duration(seconds: float) -> str:
  """`42 s`, `3 min 05 s` or `2 h 10 min`."""
  minutes, rest = divmod(round(seconds), 60)
  hours, minutes = divmod(minutes, 60)
  if hours:
    return f"{hours} h {minutes:02d} min"
  return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _time_left(elapsed: float, done: float, remaining: float) -> str:
  if done <= 0 or elapsed <= 0:
    return ""
  return format_duration(elapsed / done * max(remaining, 0.0))


def _live_display(stream: TextIO, phases: int):
  from rich import progress
  from rich.console import Console

  display = progress.Progress(
    progress.TextColumn("{task.description}", markup=False),
    progress.BarColumn(bar_width=24),
    progress.TextColumn("{task.fields[count]}", markup=False),
    progress.TextColumn("{task.fields[info]}", style="dim", markup=False),
    console=Console(file=stream),
    refresh_per_second=4,
    transient=True,
  )
  tasks = [
    display.add_task(name, total=total, count="", info="")
    for name, total in (("phase", phases), ("epoch", None), ("step", None))
  ]
  return display, tasks
