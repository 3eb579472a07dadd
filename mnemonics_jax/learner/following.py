"""Whoever hears how far a learner is."""

from collections.abc import Iterator
import contextlib
import sys

from mnemonics_jax.progress import Report


@contextlib.contextmanager
def followed(report: Report | None) -> Iterator[Report]:
  """Whoever hears of progress: the caller, or a person."""
  if report is not None:
    yield report
    return
  from mnemonics_jax.report.console import Console

  with Console(stream=sys.stderr) as console:
    yield console
