"""Ctrl-C and SIGTERM: a run saves where it is and ends."""

from collections.abc import Iterator
import contextlib
import os
import signal
import sys
import threading

# Exit codes by which a shell knows what ended a program.
_CODES = {signal.SIGINT: 130, signal.SIGTERM: 143}


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

  Args:
    advice: a sentence on how to continue.

  Attributes:
    asked: the signal that this process got, or None.
  """

  def __init__(self, advice: str = CONTINUE):
    self._advice = advice
    self.asked: signal.Signals | None = None

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
    """Takes note of signals instead of dying of them.

    Files are whole at any moment, so a run that does not come to its next
    opportunity to save may be ended without it. A second signal ends it at once.

    Args:
      safe: what is not lost when the run is ended without saving.
      patience: seconds until it is; None waits for ever.
    """
    if threading.current_thread() is not threading.main_thread():
      yield  # Only the main thread may handle signals.
      return

    def note(number, _):
      if self.asked is not None:
        os._exit(_CODES[self.asked])
      self.asked = signal.Signals(number)

    # Python's handlers wait until compiled code returns. The system's own write
    # their number to a pipe at once, where a thread can hear it.
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = {number: signal.signal(number, note) for number in _CODES}
    old_writer = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    done = threading.Event()
    message = f"{safe} {self._advice}"
    watcher = threading.Thread(
      target=_watch, args=(reader, done, message, patience), daemon=True
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


def _watch(reader, done, message, patience):
  """Ends the process if a signal is not answered in time."""
  while True:
    (number,) = os.read(reader, 1)
    if done.is_set():
      return
    if number not in _CODES:
      continue
    print("\nStopping after the running step ...", file=sys.stderr, flush=True)
    if not done.wait(patience):
      print(f"Stopped. {message}", file=sys.stderr, flush=True)
      os._exit(_CODES[signal.Signals(number)])
    return
