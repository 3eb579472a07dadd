"""Silence about what other threads complain of, while their error is on its way.

Orbax writes with threads. What goes wrong in one is logged, warned of and printed by
several hands, with traces, before the caller gets it as an exception.
"""

from collections.abc import Iterator
import contextlib
import gc
import logging
import sys
import threading
import time
import warnings

_VOICES = ("absl", "asyncio", "concurrent.futures")
# Seconds for a thread that has failed, and for what it had begun.
_LONGEST, _AFTER = 10.0, 0.5


@contextlib.contextmanager
def other_threads() -> Iterator[None]:
  """Leaves the exception that is raised here as the only word on it.

  >>> with other_threads():
  ...   thread = threading.Thread(target=lambda: 1 / 0)
  ...   thread.start()
  ...   thread.join()  # It has not said anything.
  """
  hooks = [(sys, "excepthook"), (sys, "unraisablehook")]
  hooks.append((threading, "excepthook"))
  before = [getattr(*hook) for hook in hooks]
  loggers = [logging.getLogger(name) for name in _VOICES]
  were_disabled = [logger.disabled for logger in loggers]
  with warnings.catch_warnings():
    warnings.filterwarnings("ignore", "coroutine .* was never awaited")
    for hook in hooks:
      setattr(*hook, lambda *_: None)
    for logger in loggers:
      logger.disabled = True
    try:
      yield
    except BaseException:
      _let_end()
      raise
    finally:
      for hook, function in zip(hooks, before, strict=True):
        setattr(*hook, function)
      for logger, was in zip(loggers, were_disabled, strict=True):
        logger.disabled = was


def _let_end():
  """Waits for what would complain later, of an error that is known."""
  for thread in threading.enumerate():
    if type(thread).__module__.startswith("orbax."):
      threading.Thread.join(thread, _LONGEST)  # Its own raises the error again.
  time.sleep(_AFTER)  # Kernels call back, and find that nobody waits for them.
  gc.collect()  # Half of a coroutine complains when it goes.
