"""All figures of a run: which there are, and writing them."""

from collections.abc import Callable, Iterator, Sequence
import os
from pathlib import Path

import matplotlib

from mnemonics_jax.report import charts, drawing, images, matrices
from mnemonics_jax.report.workdir import Run, load_run

# A new figure is a function here and a section of the page that embeds it.
DRAWERS: tuple[Callable[[Run], Iterator[drawing.Drawing]], ...] = (
  charts.phase_curve,
  matrices.accuracy_matrices,
  matrices.confusion_matrices,
  charts.training_curves,
  images.memory_grid,
)


def write_figures(workdir: str | os.PathLike[str] | Run) -> list[Path]:
  """Draws a run into WORKDIR/figures: NAME.png and NAME.csv for each."""
  run = workdir if isinstance(workdir, Run) else load_run(workdir)
  with matplotlib.rc_context(drawing.STYLE):
    return [
      drawing.save(item, run.path / "figures")
      for draw in DRAWERS
      for item in draw(run)
    ]


def write_comparison(runs: Sequence[Run], directory: Path) -> list[Path]:
  """Draws several runs over each other into a directory."""
  with matplotlib.rc_context(drawing.STYLE):
    return [
      drawing.save(item, directory) for item in charts.comparison_curves(runs)
    ]
