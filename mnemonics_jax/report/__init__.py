"""What a run leaves behind for people: progress, tables, figures, page.

Everything is read through `mnemonics_jax.runs`, and nothing needs JAX.
"""

from typing import TYPE_CHECKING

from mnemonics_jax import package

if TYPE_CHECKING:
  from mnemonics_jax.report.console import Console
  from mnemonics_jax.report.page import build, write_figures
  from mnemonics_jax.report.story import warning
  from mnemonics_jax.report.tables import console_table
  from mnemonics_jax.runs.layout import WorkdirError
  from mnemonics_jax.runs.results import Run, load_run

__all__ = [
  "Console",
  "Run",
  "WorkdirError",
  "build",
  "console_table",
  "load_run",
  "warning",
  "write_figures",
]


__getattr__, __dir__ = package.attach(
  __name__,
  {
    "Console": "report.console",
    "Run": "runs.results",
    "WorkdirError": "runs.layout",
    "build": "report.page",
    "console_table": "report.tables",
    "load_run": "runs.results",
    "warning": "report.story",
    "write_figures": "report.page",
  },
)
