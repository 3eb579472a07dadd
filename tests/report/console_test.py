"""What a person sees of a run, on a terminal and elsewhere."""

import io
import re

import pytest

from mnemonics_jax import report
from mnemonics_jax.progress import (
  Note,
  PhaseEnds,
  RunBegins,
  SeedBegins,
  StepReport,
)
from mnemonics_jax.report import console as console_lib


class Terminal(io.StringIO):
  def isatty(self):
    return True


@pytest.fixture
def clock(monkeypatch):
  """Time stands still but for what a test adds to `clock[0]`."""
  now = [100.0]
  monkeypatch.setattr(console_lib.time, "monotonic", lambda: now[0])
  return now


def train(listen, epochs=2):
  for epoch in range(epochs):
    for step in range(3):
      listen(StepReport(1, "train", epoch, epochs, step + 1, 3))
    metrics = {"accuracy": 0.875, "lr": 0.05, "loss": 0.41234}
    listen(StepReport(1, "train", epoch, epochs, 3, 3, metrics))


def test_the_lines_of_a_run_without_a_terminal(clock):
  stream = io.StringIO()
  with report.Console("Learning.", stream=stream) as console:
    console(RunBegins(6, (0, 7), (5, 1, 1, 1, 1, 1)))
    console(Note("Note: [bold] stays as it is"))
    for seed in (0, 7):
      console(SeedBegins(seed))
      clock[0] += 1.24
      train(console)
      console(Note("Checkpoint."))
  lines = [
    f"seed {seed} · phase 1/5 · train · epoch {epoch}/2 · loss 0.412"
    f" · accuracy 87.5 % · {seconds} s"
    for seed in (0, 7)
    for epoch, seconds in ((1, "1.2"), (2, "0.0"))
  ]
  assert stream.getvalue().splitlines() == [
    "Learning.",
    "Note: [bold] stays as it is",
    *lines[:2],
    "Checkpoint.",
    *lines[2:],
    "Checkpoint.",
  ]


def test_given_seconds_are_used():
  stream = io.StringIO()
  with report.Console(stream=stream) as console:
    console(RunBegins(2, (0,), (1, 1)))
    console(StepReport(0, "train", 0, 1, 1, 1, {"loss": 1.0, "seconds": 2.06}))
  assert stream.getvalue() == (
    "phase 0/1 · train · epoch 1/1 · loss 1.000 · 2.1 s\n"
  )


def test_a_phase_without_a_run_is_shown_too(clock):
  stream = io.StringIO()
  with report.Console(stream=stream) as console:
    console(StepReport(3, "train", 0, 1, 1, 1, {"loss": 1.0}))
  assert stream.getvalue() == (
    "phase 3 · train · epoch 1/1 · loss 1.000 · 0.0 s\n"
  )


def test_without_a_stream_it_is_the_current_standard_output(capsys):
  with report.Console() as console:
    console(Note("said"))
  assert capsys.readouterr().out == "said\n"


def test_live_display_on_a_terminal(monkeypatch):
  monkeypatch.setenv("TERM", "xterm")
  monkeypatch.setenv("COLUMNS", "120")
  stream = Terminal()
  with report.Console(stream=stream) as console:
    console(RunBegins(6, (0, 1), (5, 1, 1, 1, 1, 1)))
    for seed in (0, 1):
      console(SeedBegins(seed))
      train(console)
      console(Note("[bold] between"))
      train(console)
  text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", stream.getvalue())
  assert "seed 0 · phase" in text and "seed 1 · phase" in text
  assert "train · epoch" in text
  assert "loss 0.412 · accuracy 87.5 %" in text
  assert "[bold] between" in text


def test_the_display_ends_with_its_context(monkeypatch):
  monkeypatch.setenv("TERM", "xterm")
  stream = Terminal()
  with report.Console(stream=stream) as console:
    console(SeedBegins(0))
    train(console)
  written = stream.getvalue()
  # A display that is alive would hide the cursor, and draw when it likes.
  assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1


def test_the_display_shows_the_time_left_for_all_seeds(clock, monkeypatch):
  monkeypatch.setattr(console_lib, "_REFRESH", 0.0)
  with report.Console(stream=Terminal()) as console:
    console(RunBegins(5, (0, 1), (6, 1, 1, 1, 1)))
    console(SeedBegins(0))
    shown = lambda: console._display.tasks[0].fields["info"]
    clock[0] += 5.0  # Programs are compiled.
    console(StepReport(0, "train", 0, 2, 0, 1))
    assert shown() == ""
    clock[0] += 3.0
    console(StepReport(0, "train", 1, 2, 0, 1))
    # Half of 6 units took 3 s: 7 units of this seed are left, 10 of the other.
    assert shown() == "17 s left"
    clock[0] += 4.0
    console(PhaseEnds(0, 5, {"head": 0.9}))
    # The phase has taken 12 s: 14 units are left. The line above says the same.
    console(StepReport(1, "train", 0, 2, 0, 1))
    assert shown() == "28 s left"


def test_every_phase_ends_with_its_accuracy_and_the_time_left(clock):
  stream = io.StringIO()
  with report.Console(stream=stream) as console:
    console(RunBegins(2, (3,), (3.0, 1.0)))
    console(SeedBegins(3))
    console(StepReport(0, "train", 0, 1, 1, 2))
    clock[0] += 30.0
    console(PhaseEnds(0, 5, {"head": 0.9, "nme": 0.875}))
    clock[0] += 12.0
    console(PhaseEnds(1, 6, {"head": 0.5, "nme": 0.625}))
  assert stream.getvalue().splitlines() == [
    "seed 3 · phase 0/1 ended · 5 classes · head 90.0 % · nme 87.5 % · about 10 s"
    " left",
    "seed 3 · phase 1/1 ended · 6 classes · head 50.0 % · nme 62.5 %",
  ]


def test_a_base_model_that_was_read_does_not_promise_a_short_run(clock):
  stream = io.StringIO()
  with report.Console(stream=stream) as console:
    console(RunBegins(3, (0,), (6.0, 2.0, 2.0)))
    console(StepReport(0, "train", 0, 1, 0, 1))  # As the stage begins.
    clock[0] += 1.0
    console(PhaseEnds(0, 5, {"head": 0.9}))
    console(StepReport(1, "train", 0, 1, 1, 2))
    clock[0] += 20.0
    console(PhaseEnds(1, 6, {"head": 0.8}))
  assert stream.getvalue().splitlines() == [
    "phase 0/2 ended · 5 classes · head 90.0 %",
    "phase 1/2 ended · 6 classes · head 80.0 % · about 20 s left",
  ]


def test_nor_does_its_display(clock, monkeypatch):
  monkeypatch.setattr(console_lib, "_REFRESH", 0.0)
  with report.Console(stream=Terminal()) as console:
    console(RunBegins(3, (0,), (6.0, 2.0, 2.0)))
    console(StepReport(0, "train", 0, 1, 0, 1))
    shown = lambda: [t.fields["info"] for t in console._display.tasks]
    clock[0] += 3.0
    console(StepReport(0, "exemplars", 0, 1, 0, 1))
    clock[0] += 3.0
    console(StepReport(0, "exemplars", 0, 1, 1, 1))
    assert not any("left" in info for info in shown())


def test_a_new_stage_does_not_show_the_loss_of_the_last(monkeypatch):
  monkeypatch.setattr(console_lib, "_REFRESH", 0.0)
  with report.Console(stream=Terminal()) as console:
    train(console, epochs=1)
    step_task = console._bars[-1]
    fields = lambda: console._display.tasks[step_task].fields
    assert "loss 0.412" in fields()["info"]
    console(StepReport(1, "exemplars", 0, 2, 0, 1))
    assert fields()["info"] == ""


def test_the_bar_of_phases_is_full_only_at_the_end(monkeypatch):
  monkeypatch.setattr(console_lib, "_REFRESH", 0.0)
  with report.Console(stream=Terminal()) as console:
    console(RunBegins(2, (0,), (1.0, 1.0)))
    console(SeedBegins(0))
    train(console, epochs=1)  # Of phase 1, the last.
    bar = console._display.tasks[console._bars[0]]
    assert bar.completed < bar.total


def test_the_duration_is_estimated_once_for_all_seeds(clock):
  stream = io.StringIO()
  with report.Console(stream=stream) as console:
    # 2 seeds of 50 + 10 steps.
    console(RunBegins(2, (3, 4), (50.0, 10.0)))
    for seed in (3, 4):
      console(SeedBegins(seed))
      for step in range(1, 11):
        # Steps take half a second, but for the first, which are compiled.
        clock[0] += 0.5 if step > 3 else 30.0
        console(StepReport(0, "train", 0, 1, step, 50))
      console(StepReport(1, "train", 0, 1, 1, 10))
  assert stream.getvalue().splitlines() == [
    "Training steps alone will take about 1 min 00 s (0.5 s each, measured);"
    " compiling and testing come on top."
  ]


@pytest.mark.parametrize(
  "first",
  [
    StepReport(1, "train", 0, 1, 1, 50),  # A run that is continued.
    StepReport(0, "exemplars", 0, 1, 1, 50),  # The base model was there.
  ],
)
def test_no_estimate_where_phase_0_is_not_trained(clock, first):
  said = []
  listener = console_lib.Estimate(said.append)
  listener(RunBegins(2, (0,), (50.0, 10.0)))
  listener(first)
  for step in range(20):
    clock[0] += 1.0
    listener(StepReport(0, "train", 0, 1, step, 50))
  assert not said


def test_what_phases_took_tells_what_is_left():
  """Work is 6 + 2 + 2 for each of two seeds; phases take 3 s a unit."""
  remaining = console_lib.Remaining((6.0, 2.0, 2.0), seeds=2)
  phases = [(0, 18.0), (1, 6.0), (2, 6.0)]
  left = [remaining.after(*one) for one in phases * 2]
  assert left == pytest.approx([42, 36, 30, 12, 6, 0])


def test_phases_that_compile_are_forgotten():
  """The first two take 20 s more; the others 1 s, as they are of equal work."""
  remaining = console_lib.Remaining((1.0,) * 5, seeds=1)
  left = [remaining.after(*one) for one in enumerate([21, 21, 1, 1, 1])]
  assert left == pytest.approx([84, 63, 2, 1, 0])


def test_a_model_that_was_there_tells_nothing_of_what_is_left():
  """Phase 0 is read in a second, the others need 10 s a unit."""
  remaining = console_lib.Remaining((6.0, 2.0, 2.0), seeds=1)
  remaining.during(0, 0.9, 0.5)  # Its exemplars.
  assert remaining.after(0, 1.0, trained=False) == 0
  assert remaining.during(1, 0.5, 0.0) == 0
  assert remaining.during(1, 1.0, 10.0) == pytest.approx(20)
  assert remaining.after(1, 20.0) == pytest.approx(40)


def test_a_run_that_continues_has_done_only_what_it_was_seen_doing():
  """It goes on where three quarters of phase 1 were done, and needs 8 s a unit."""
  remaining = console_lib.Remaining((4.0, 4.0, 4.0), seeds=1)
  assert remaining.during(1, 0.75, 5.0) == 0  # Nothing is known yet.
  assert remaining.during(1, 0.875, 9.0) == pytest.approx(8 * 4.5)
  assert remaining.after(1, 8.0) == pytest.approx(8 * 4)


def test_bars_show_how_much_of_an_epoch_is_done(monkeypatch):
  monkeypatch.setattr(console_lib, "_REFRESH", 0.0)
  with report.Console(stream=Terminal()) as console:
    console(RunBegins(2, (0,), (1.0, 1.0)))

    def shown(event):
      console(event)
      _, epochs, steps = console._display.tasks
      counts = epochs.fields["count"], steps.fields["count"]
      return epochs.completed, steps.completed, *counts

    assert shown(StepReport(0, "train", 1, 4, 1, 2)) == (1.5, 1, "2/4", "1/2")
    done = StepReport(0, "train", 1, 4, 2, 2, {"loss": 1.0})
    assert shown(done) == (2, 2, "2/4", "2/2")
    # A stage may not know its steps.
    assert shown(StepReport(0, "adjust", 0, 1, 0, 0)) == (0, 0, "1/1", "0/0")
