"""The progress display on a terminal and elsewhere."""

import io
import re

from mnemonics_jax import report
from mnemonics_jax.report.progress import format_duration
from mnemonics_jax.types import StepReport


class Terminal(io.StringIO):
  def isatty(self):
    return True


def run(progress, epochs=2):
  for epoch in range(epochs):
    for step in range(3):
      progress(StepReport(1, "train", epoch, epochs, step + 1, 3))
    metrics = {"accuracy": 0.875, "lr": 0.05, "loss": 0.41234}
    progress(StepReport(1, "train", epoch, epochs, 3, 3, metrics))


def test_one_line_per_epoch_without_a_terminal():
  stream = io.StringIO()
  with report.Progress(6, "seed 0", stream=stream) as progress:
    run(progress)
    progress.say("[bold] stays as it is")
  first, second, said = stream.getvalue().splitlines()
  expected = (
    r"seed 0 · phase 1/5 · train · epoch 1/2 · loss 0\.412"
    r" · accuracy 87\.5 % · \d+\.\d s"
  )
  assert re.fullmatch(expected, first)
  assert "epoch 2/2" in second
  assert said == "[bold] stays as it is"


def test_given_seconds_are_used():
  stream = io.StringIO()
  with report.Progress(2, stream=stream) as progress:
    progress(StepReport(0, "train", 0, 1, 1, 1, {"loss": 1.0, "seconds": 2.06}))
  assert stream.getvalue() == (
    "phase 0/1 · train · epoch 1/1 · loss 1.000 · 2.1 s\n"
  )


def test_live_display_on_a_terminal(monkeypatch):
  monkeypatch.setenv("TERM", "xterm")
  monkeypatch.setenv("COLUMNS", "120")
  stream = Terminal()
  with report.Progress(6, "seed 0", work=[5] + [1] * 5, stream=stream) as p:
    run(p)
    p.say("[bold] between")
    run(p)
  text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
  assert "seed 0 · phase" in text
  assert "train · epoch" in text
  assert "loss 0.412 · accuracy 87.5 %" in text
  assert "[bold] between" in text
  assert "left in this stage" in text


def test_time_left_follows_the_work(monkeypatch):
  clock = iter([100.0, 100.0, 103.0, 103.0])
  monkeypatch.setattr(
    "mnemonics_jax.report.progress.time.monotonic", lambda: next(clock)
  )
  # Phase 0 is 6 of 10 units. Half of it took 3 s: 7 units are left, 7 s.
  p = report.Progress(5, work=[6, 1, 1, 1, 1], stream=io.StringIO())
  with p:
    p._run_left(StepReport(0, "train", 0, 2, 0, 1), 0.0, 100.0)
    assert p._run_left(StepReport(0, "train", 0, 2, 1, 1), 0.5, 103.0) == (
      "7 s left in all"
    )


def test_durations():
  assert format_duration(41.6) == "42 s"
  assert format_duration(185) == "3 min 05 s"
  assert format_duration(7800) == "2 h 10 min"
