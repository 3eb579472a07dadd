"""The progress of a run: a live display on a terminal, plain lines elsewhere."""

from collections.abc import Callable, Mapping, Sequence
import io
import sys
import time
from typing import TextIO, cast

from mnemonics_jax.progress import (
  Event,
  Note,
  PhaseEnds,
  RunBegins,
  SeedBegins,
  StepReport,
)
from mnemonics_jax.report.words import format_duration

_REFRESH = 0.1  # Seconds between updates of the live display.

Stream = TextIO | io.TextIOBase


class Console:
  """A `Report` for people, and the context in which its display is alive.

  On a terminal it draws phases, epochs and steps with the time left. Anywhere
  else it prints one line per completed epoch, and nothing in between. Notes are
  printed as they come, after every phase its accuracy and the time left, and
  after the first steps an estimate of the training time.

  Args:
    opening: printed when the run begins.
    stream: where to write, by default standard output.

  Example:
    >>> from mnemonics_jax.progress import RunBegins, SeedBegins, StepReport
    >>> with Console("Learning ten classes.") as report:
    ...   report(RunBegins(phases=6, seeds=(0,), work=(5, 1, 1, 1, 1, 1)))
    ...   report(SeedBegins(0))
    ...   done = {"loss": 0.25, "accuracy": 0.9, "seconds": 2.0}
    ...   report(StepReport(0, "train", 0, 10, 32, 32, done))
    Learning ten classes.
    seed 0 · phase 0/5 · train · epoch 1/10 · loss 0.250 · accuracy 90.0 % · 2.0 s
  """

  def __init__(self, opening: str = "", *, stream: Stream | None = None):
    self._opening = opening
    self._stream = stream
    self._run: RunBegins | None = None
    self._seed: str | None = None  # What to call it, for example "seed 0".
    self._stage: tuple[int, str] | None = None  # The one that is running.
    self._estimate = Estimate(self._say)
    self._remaining: Remaining | None = None
    self._phase_began = self._epoch_began = time.monotonic()
    self._trained = False  # In this phase.
    self._display, self._bars, self._drawn = None, [], 0.0

  def __enter__(self) -> "Console":
    return self

  def __exit__(self, *_: object) -> None:
    self._end_display()

  def __call__(self, event: Event) -> None:
    match event:
      case RunBegins():
        self._run = event
        self._remaining = Remaining(event.work, len(event.seeds))
        self._phase_began = time.monotonic()
        if self._opening:
          self._say(self._opening)
      case SeedBegins(seed):
        self._begin(f"seed {seed}")
      case Note(text):
        self._say(text)
      case StepReport():
        # A model that is read begins to be trained, and gets no further.
        done = event.epoch or event.step
        self._trained |= event.stage == "train" and done > 0
        self._step(event)
      case PhaseEnds():
        self._say(self._phase_line(event))
    self._estimate(event)

  def _phase_line(self, end: PhaseEnds) -> str:
    """What a phase has come to, and how long the others will take."""
    accuracies = [f"{k} {100 * v:.1f} %" for k, v in end.accuracy.items()]
    parts = [
      self._seed or "",
      f"phase {self._of(end.phase)} ended",
      f"{end.classes_seen} classes",
      *accuracies,
    ]
    now = time.monotonic()
    if self._remaining:
      seconds = now - self._phase_began
      left = self._remaining.after(end.phase, seconds, self._trained)
      parts.append(f"about {format_duration(left)} left" if left else "")
    self._phase_began, self._trained = now, False
    return " · ".join(part for part in parts if part)

  def _of(self, phase: int) -> str:
    """A phase and the last one, where that is known: "1/5"."""
    return f"{phase}/{self._run.phases - 1}" if self._run else f"{phase}"

  def _time_left(self, phase: int, share: float) -> str:
    """For all phases of all seeds, when a share of one is done."""
    seconds = time.monotonic() - self._phase_began
    left = self._remaining and self._remaining.during(phase, share, seconds)
    read = phase == 0 and not self._trained  # Which was faster than work.
    return f"{format_duration(left)} left" if left and not read else ""

  def _begin(self, label: str) -> None:
    """A seed begins; on a terminal it has a display of its own."""
    self._end_display()
    self._seed, self._stage = label, None
    self._epoch_began = time.monotonic()
    stream = self._stream or sys.stdout
    if stream.isatty():
      self._display, self._bars = _live_display(stream)
      self._display.start()

  def _end_display(self) -> None:
    if self._display:
      self._display.stop()
      self._display = None

  def _say(self, text: str) -> None:
    """Prints a message above the live display, or as a plain line."""
    if self._display:
      self._display.console.print(text, markup=False, highlight=False)
    else:
      print(text, file=self._stream or sys.stdout, flush=True)

  def _step(self, report: StepReport) -> None:
    if self._seed is None:
      self._begin("")
    now = time.monotonic()
    if self._stage != (report.phase, report.stage):
      self._stage = report.phase, report.stage
      if self._display:  # What the stage before has measured is old news.
        self._display.update(self._bars[-1], info="")
    if self._display:
      if report.metrics is not None or now - self._drawn >= _REFRESH:
        self._drawn = now
        self._draw(report)
    elif report.metrics is not None:
      self._say(self._line(report, now - self._epoch_began))
    if report.metrics is not None:
      self._epoch_began = now

  def _line(self, report: StepReport, seconds: float) -> str:
    metrics = dict(report.metrics or {})
    seconds = metrics.pop("seconds", seconds)
    parts = [
      self._seed or "",
      f"phase {self._of(report.phase)}",
      report.stage,
      f"epoch {report.epoch + 1}/{report.epochs}",
      format_metrics(metrics),
      f"{seconds:.1f} s",
    ]
    return " · ".join(part for part in parts if part)

  def _draw(self, report: StepReport) -> None:
    assert self._display
    phases, epochs, steps = self._bars
    within = 1.0 if report.metrics is not None else 0.0
    if report.steps and not within:
      within = min(report.step / report.steps, 1.0)
    done = report.epoch + within
    share = done / report.epochs if report.epochs else 0.0
    # Later stages are not counted as work: what phases take includes them.
    trained = share if report.stage == "train" else 1.0
    update = self._display.update
    update(
      phases,
      description=f"{self._seed} · phase" if self._seed else "phase",
      completed=report.phase,
      total=self._run.phases if self._run else None,
      count=self._of(report.phase),
      info=self._time_left(report.phase, min(trained, 1.0)),
    )
    update(
      epochs,
      description=f"{report.stage} · epoch",
      completed=done,
      total=report.epochs,
      count=f"{min(report.epoch + 1, report.epochs)}/{report.epochs}",
    )
    update(
      steps,
      completed=report.step,
      total=report.steps,
      count=f"{report.step}/{report.steps}",
    )
    if report.metrics is not None:
      metrics = {k: v for k, v in report.metrics.items() if k != "seconds"}
      update(steps, info=format_metrics(metrics))


def format_metrics(metrics: Mapping[str, float]) -> str:
  """`loss 0.412 · accuracy 87.5 %`; the rest only where these are missing."""

  def one(name: str) -> str:
    if "accuracy" in name:
      return f"{name} {100 * metrics[name]:.1f} %"
    return f"{name} {metrics[name]:.3f}"

  main = [name for name in ("loss", "accuracy") if name in metrics]
  return " · ".join(one(name) for name in main or metrics)


def _live_display(stream: Stream):
  """Three bars: phases, epochs, steps."""
  from rich import progress
  from rich.console import Console as Terminal

  display = progress.Progress(
    progress.TextColumn("{task.description}", markup=False),
    progress.BarColumn(bar_width=24),
    progress.TextColumn("{task.fields[count]}", markup=False),
    progress.TextColumn("{task.fields[info]}", style="dim", markup=False),
    console=Terminal(file=cast(TextIO, stream)),
    refresh_per_second=4,
    transient=True,
  )
  tasks = [
    display.add_task(name, total=None, count="", info="")
    for name in ("phase", "epoch", "step")
  ]
  return display, tasks


class Estimate:
  """A `Report` that says once, after the first steps, how long training takes.

  What else a run does is known when its first phases are over: see `Remaining`.

  Args:
    say: receives the sentence.
    settle: seconds to measure for, once the programs have been compiled.
  """

  def __init__(self, say: Callable[[str], None], settle: float = 1.0):
    self._say = say
    self._settle = settle
    self._work = 0.0
    self._first = 0.0, 0
    self._heard = 0
    self._done = True  # Until a run begins.

  def __call__(self, event: Event) -> None:
    match event:
      case RunBegins(_, seeds, work):
        self._work = sum(work) * len(seeds)
        self._heard, self._done = 0, False
      case StepReport():
        self._measure(event)

  def _measure(self, report: StepReport) -> None:
    # A base phase too short to measure is over before one could read on.
    self._done = self._done or report.phase > 0 or report.stage != "train"
    if self._done:
      return
    now, steps = time.monotonic(), report.epoch * report.steps + report.step
    self._heard += 1
    if self._heard <= 3:
      # Calls that still compile end with the first reports; time counts after.
      self._first = now, steps
    elif now - self._first[0] >= self._settle:
      pace = (now - self._first[0]) / (steps - self._first[1])
      self._done = True
      self._say(
        f"Training steps alone will take about {format_duration(pace * self._work)}"
        f" ({pace:.3g} s each, measured); compiling and testing come on top."
      )


class Remaining:
  """The time that is left for all seeds, by what the phases so far have taken.

  The first two phases compile, which tells nothing of those that follow.

  >>> remaining = Remaining((6.0, 2.0, 2.0), seeds=1)
  >>> remaining.after(phase=0, seconds=30.0)  # 6 of 10 units took 30 s.
  20.0

  Args:
    work: expected work of each phase.
    seeds: how many seeds do all of it.
  """

  def __init__(self, work: Sequence[float], seeds: int):
    self._work, self._seeds = work, seeds
    self._took: list[tuple[float, float]] = []  # Work and seconds of phases.
    # Share of the first phase, which may be continued, and seconds when it was
    # heard of: with its first steps, programs have been compiled.
    self._start: tuple[float, float] | None = None

  def after(self, phase: int, seconds: float, trained: bool = True) -> float:
    """Seconds that are left, once a phase has taken so many; 0 if nobody knows.

    Args:
      phase: its number.
      seconds: what it took.
      trained: False if its model was there already: that was faster than work.
    """
    if trained:
      before = 0.0 if self._took or not self._start else self._start[0]
      self._took.append((self._work[phase] * (1 - before), seconds))
    elif not self._took:
      self._start = None
    left = self.during(phase, 1.0, seconds) if self._took else 0.0
    self._seeds -= phase == len(self._work) - 1
    return left

  def during(self, phase: int, share: float, seconds: float) -> float:
    """Seconds that are left, once a share of a phase has been reached in so many."""
    if self._start is None:
      self._start = share, seconds
    began, since = self._start
    now = self._work[phase] * (share - began), seconds - since
    measured = self._took[2:] or self._took or [now]
    work, took = (sum(column) for column in zip(*measured, strict=True))
    rest = sum(self._work[phase:]) - self._work[phase] * share
    rest += sum(self._work) * (self._seeds - 1)
    return took / work * rest if work > 0 else 0.0
