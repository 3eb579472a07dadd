"""A run on disk: `runs.run` makes one, `runs.load_run` reads one.

Whatever interrupts a run, the same call continues it and ends with the same
numbers. docs/formats.md describes the files.
"""

from typing import TYPE_CHECKING

from mnemonics_jax import package

if TYPE_CHECKING:
  from mnemonics_jax.runs.claim import BusyError
  from mnemonics_jax.runs.extending import extend
  from mnemonics_jax.runs.journal import Policy
  from mnemonics_jax.runs.layout import WorkdirError
  from mnemonics_jax.runs.learners import export
  from mnemonics_jax.runs.metrics_log import read_metrics
  from mnemonics_jax.runs.results import Run, load_run
  from mnemonics_jax.runs.runner import Diverged, Labels, run
  from mnemonics_jax.runs.signals import Stopped

__all__ = [
  "BusyError",
  "Diverged",
  "Labels",
  "Policy",
  "Run",
  "Stopped",
  "WorkdirError",
  "export",
  "extend",
  "load_run",
  "read_metrics",
  "run",
]


__getattr__, __dir__ = package.attach(
  __name__,
  {
    "BusyError": "runs.claim",
    "Diverged": "runs.runner",
    "Labels": "runs.runner",
    "Policy": "runs.journal",
    "Run": "runs.results",
    "Stopped": "runs.signals",
    "WorkdirError": "runs.layout",
    "export": "runs.learners",
    "extend": "runs.extending",
    "load_run": "runs.results",
    "read_metrics": "runs.metrics_log",
    "run": "runs.runner",
  },
)
