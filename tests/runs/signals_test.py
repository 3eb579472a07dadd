"""Signals are noted, agreed on and obeyed; one that is not heard ends it all."""

from collections.abc import Iterator
import contextlib
import os
from pathlib import Path
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from mnemonics_jax.runs import Stopped
from mnemonics_jax.runs.signals import Stop

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
  "number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_a_signal_is_noted_and_obeyed(number, code):
  before = signal.getsignal(number)
  stop = Stop("To continue, call again.")
  with stop.listening("Nothing is lost."):
    stop.obey()  # Nobody has asked.
    os.kill(os.getpid(), number)
    assert stop.asked == stop.agreed() == number
    with pytest.raises(Stopped, match="To continue, call again") as stopped:
      stop.obey()
    assert stopped.value.code == code
  assert signal.getsignal(number) is before


@contextlib.contextmanager
def _listening(
  body: str, patience: float | None = 0.5
) -> Iterator[subprocess.Popen]:
  """A process that listens, says so, and does something else."""
  code = "\n".join(
    [
      "import time",
      "from mnemonics_jax.runs import signals",
      "stop = signals.Stop('Call again.')",
      f"with stop.listening('What is saved is safe.', {patience}):",
      "  print('listening', flush=True)",
      textwrap.indent(body, "  "),
      "print('went on')",
    ]
  )
  with subprocess.Popen(
    [sys.executable, "-c", code],
    cwd=ROOT,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  ) as process:
    try:
      assert process.stdout is not None
      assert process.stdout.readline() == "listening\n"
      yield process
    finally:
      process.kill()


def test_a_step_that_takes_too_long_is_thrown_away():
  with _listening("time.sleep(60)") as process:
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
  assert process.returncode == 143
  assert "Stopping after the running step" in err
  assert "Stopped. What is saved is safe. Call again." in err


def test_a_step_that_ends_in_time_goes_on():
  with _listening("time.sleep(0.2)") as process:
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
  assert (process.returncode, out) == (0, "went on\n")
  assert "Stopped." not in err


def test_a_second_signal_ends_it_at_once():
  with _listening("while True: time.sleep(0.01)", patience=60) as process:
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == "\n"
    assert process.stderr.readline().startswith("Stopping")
    time.sleep(1.1)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130


def test_a_second_signal_ends_what_is_compiled_code_at_once():
  body = "import hashlib\nhashlib.pbkdf2_hmac('sha256', b'a', b'b', 10**9)"
  with _listening(body, patience=60) as process:
    process.send_signal(signal.SIGTERM)
    assert process.stderr is not None
    assert process.stderr.readline() == "\n"
    time.sleep(1.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 143


def test_a_signal_that_comes_twice_is_one():
  with _listening("time.sleep(1)", patience=60) as process:
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
  assert (process.returncode, out) == (0, "went on\n")


def test_a_slow_save_gets_patience_of_its_own():
  """Neither the step nor the save alone takes longer than it is given."""
  body = "time.sleep(0.7)\nwith stop.saving(): time.sleep(0.7)"
  with _listening(body, patience=1.2) as process:
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
  assert (process.returncode, out) == (0, "went on\n")


def test_steps_get_as_long_as_those_before_them():
  body = """
stop.opportunity()
time.sleep(0.5)
stop.opportunity()
with stop.saving(): time.sleep(0.2)
print('asked', flush=True)
time.sleep(0.8)"""
  with _listening(body, patience=0.1) as process:
    assert process.stdout is not None
    assert process.stdout.readline() == "asked\n"
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=30)
  assert (process.returncode, out) == (0, "went on\n")


def test_patience_is_two_steps_and_a_save(monkeypatch):
  now = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: now[0])
  stop = Stop()
  for seconds in (3.0, 10.0, 2.0):
    stop.opportunity()
    now[0] += seconds
    stop.opportunity()
  with stop.saving():
    now[0] += 7.0
  now[0] += 1.0
  stop.opportunity()  # A save is no part of the step after it.
  assert stop.patience(5.0) == 2 * 10.0 + 7.0
  assert stop.patience(60.0) == 60.0


def test_a_library_call_is_never_ended_before_it_has_saved():
  body = "time.sleep(1)\nstop.obey()"
  with _listening(body, patience=None) as process:
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
  assert "Stopped: Stopped and saved. Call again." in err
