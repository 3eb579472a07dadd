"""What a run leaves behind for people: metrics, progress, tables, figures, page.

Names are resolved on first use, so that a run does not wait for matplotlib
before it has something to draw.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
  from mnemonics_jax.report.figures import write_figures
  from mnemonics_jax.report.metrics_log import MetricsLog, read_metrics
  from mnemonics_jax.report.page import build
  from mnemonics_jax.report.progress import Progress
  from mnemonics_jax.report.tables import console_table
  from mnemonics_jax.report.workdir import Run, WorkdirError, load_run

_HOME = {
  "MetricsLog": "metrics_log",
  "Progress": "progress",
  "Run": "workdir",
  "WorkdirError": "workdir",
  "build": "page",
  "console_table": "tables",
  "load_run": "workdir",
  "read_metrics": "metrics_log",
  "write_figures": "figures",
}

__all__ = [
  "MetricsLog",
  "Progress",
  "Run",
  "WorkdirError",
  "build",
  "console_table",
  "load_run",
  "read_metrics",
  "write_figures",
]


def __getattr__(name: str) -> Any:
  if name not in _HOME:
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
  return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
