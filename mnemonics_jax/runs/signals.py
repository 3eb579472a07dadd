"""Ctrl-C and SIGTERM: a run saves where it is and ends."""

from collections.abc import Iterator
import contextlib
import os
import select
import signal
import sys
import threading
import time

# Exit codes by which a shell knows what ended a program.
_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}
# Programs that start others pass on signals which those got, too: within so many
# seconds, two are one.
_ONE_SIGNAL = 1.0

CONTINUE = "Run it again to continue from there."


class Stopped(Exception):
  """The run was asked to end, and has saved where it is.

  >>> stopped = Stopped(143)  # SIGTERM.
  >>> str(stopped), stopped.code
  ('Stopped and saved. Run it again to continue from there.', 143)

  Attributes:
    code: exit code that tells which signal asked.
  """

  def __init__(self, code: int, advice: str = CONTINUE):
    super().__init__(f"Stopped and saved. {advice}")
    self.code = code


class Stop:
  """Whether somebody has asked the run to end.

  It has patience until the run has saved where it is. Files are whole at any
  moment, so one that does not come to its next opportunity may be ended without.

  Args:
    advice: a sentence on how to continue.

  Attributes:
    asked: the signal that this process got, or None.
  """

  def __init__(self, advice: str = CONTINUE):
    self._advice = advice
    self.asked: signal.Signals | None = None
    self._opportunity: float | None = None
    self._longest_step = self._longest_save = 0.0
    self._waiting_since = 0.0

  def opportunity(self) -> None:
    """Takes note that the run could save now: it measures steps."""
    now = time.monotonic()
    if self._opportunity is not None:
      step = now - self._opportunity
      self._longest_step = max(self._longest_step, step)
    self._opportunity = now

  @contextlib.contextmanager
  def saving(self) -> Iterator[None]:
    """While a run saves: patience starts again, and what it takes is measured."""
    began = self._waiting_since = time.monotonic()
    yield
    self._opportunity = time.monotonic()
    save = self._opportunity - began
    self._longest_save = max(self._longest_save, save)

  def patience(self, least: float) -> float:
    """Seconds to wait for a step or a save: as long as those before, and more.

    >>> Stop().patience(least=25.0)  # Nothing was measured yet.
    25.0
    """
    return max(least, 2 * self._longest_step + self._longest_save)

  def agreed(self) -> int:
    """The signal that some process of the run has got, or 0.

    All processes have to call this at the same place.
    """
    # Commands know of `Stopped` before anything needs JAX.
    from mnemonics_jax.parallel import processes

    return processes.all_max(self.asked or 0)

  def obey(self) -> None:
    """Raises `Stopped` if somebody has asked; see `agreed`."""
    if asked := self.agreed():
      raise Stopped(_CODES[signal.Signals(asked)], self._advice)

  @contextlib.contextmanager
  def listening(
    self, safe: str, patience: float | None = None
  ) -> Iterator[None]:
    """Takes note of signals instead of dying of them; a second one is obeyed.

    Args:
      safe: what is not lost when the run is ended without saving.
      patience: least seconds until it is; None waits for ever.
    """
    if threading.current_thread() is not threading.main_thread():
      yield  # Only the main thread may handle signals.
      return

    def note(number, _):
      self.asked = self.asked or signal.Signals(number)

    # Python's handlers wait until compiled code returns. The system's own write
    # their number to a pipe at once, where a thread can hear it.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = {number: signal.signal(number, note) for number in _CODES}
    old_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    done = threading.Event()
    message = f"{safe} {self._advice}"
    watcher = threading.Thread(
      target=self._watch, args=(reader, done, message, patience), daemon=True
    )
    watcher.start()
    try:
      yield
    finally:
      done.set()
      signal.set_wakeup_fd(old_writer)
      for number, handler in before.items():
        signal.signal(number, handler)
      os.write(writer, b"\0")
      watcher.join()
      os.close(reader)
      os.close(writer)

  def _watch(self, reader, done, message, patience):
    """Ends the process if a signal is not answered in time, or sent again."""
    code, first, left = 0, 0.0, None
    while left is None or left > 0:
      if select.select([reader], [], [], left)[0]:
        (number,) = os.read(reader, 1)
        if done.is_set():
          return
        if number in _CODES and not code:
          code = _CODES[signal.Signals(number)]
          first = self._waiting_since = time.monotonic()
          _say("\nStopping after the running step; again to stop at once ...")
        elif number in _CODES and time.monotonic() > first + _ONE_SIGNAL:
          os._exit(code)
      if code and patience is not None:
        until = self._waiting_since + self.patience(patience)
        left = until - time.monotonic()
    _say(f"Stopped. {message}")
    os._exit(code)


def _say(text):
  with contextlib.suppress(OSError, ValueError):  # Nobody may listen any more.
    print(text, file=sys.stderr, flush=True)
