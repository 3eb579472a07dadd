"""Of an error in another thread only the caller hears."""

import asyncio
import logging
import sys
import threading
import warnings

import pytest

from mnemonics_jax.runs import quiet


def _complain():
  """In every way in which a thread of Orbax does."""
  logging.getLogger("absl").error("it failed")
  logging.getLogger("asyncio").error("it failed")
  asyncio.sleep(0)  # A coroutine that nobody awaits.
  raise ValueError("it failed")


def _run_thread():
  thread = threading.Thread(target=_complain)
  thread.start()
  thread.join()


def test_threads_say_nothing_and_the_exception_passes(capfd):
  with pytest.raises(OSError, match="full"), quiet.other_threads():
    _run_thread()
    raise OSError("full")
  assert capfd.readouterr() == ("", "")


def test_everything_is_as_before_afterwards(capfd):
  hooks = lambda: (sys.excepthook, sys.unraisablehook, threading.excepthook)
  before, filters = hooks(), [*warnings.filters]
  with quiet.other_threads():
    assert hooks() != before
  assert hooks() == before
  assert warnings.filters == filters
  assert not logging.getLogger("absl").disabled
