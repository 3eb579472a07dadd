"""All figures of a run: which there are, and writing them."""

from collections.abc import Callable, Iterator, Sequence
import os
from pathlib import Path

import matplotlib

from mnemonics_jax.report import (
  changes,
  charts,
  distances,
  drawing,
  images,
  maps,
  matrices,
  training,
)
from mnemonics_jax.runs.finished import Run, load_run

# A new figure is a function here and a section of the page that embeds it.
DRAWERS: tuple[Callable[[Run], Iterator[drawing.Drawing]], ...] = (
  charts.phase_curve,
  charts.moment_curves,
  matrices.accuracy_matrices,
  matrices.confusion_matrices,
  training.training_curves,
  changes.distances,
  changes.grids,
  maps.feature_map,
  images.memory_grid,
)

COMPARISONS: tuple[
  Callable[[Sequence[Run]], Iterator[drawing.Drawing]], ...
] = (
  charts.comparison_curves,
  maps.comparison_map,
  distances.comparison_distances,
)


def write_figures(workdir: str | os.PathLike[str] | Run) -> list[Path]:
  """Draws a run into WORKDIR/figures: NAME.png and NAME.csv for each.

  >>> first, *_ = write_figures("finished_run")
  >>> first.as_posix()
  'finished_run/figures/phase_curve.png'
  """
  run = workdir if isinstance(workdir, Run) else load_run(workdir)
  with matplotlib.rc_context(drawing.STYLE):
    return [
      drawing.save(item, run.path / "figures")
      for draw in DRAWERS
      for item in draw(run)
    ]


def write_comparison(
  runs: Sequence[Run], directory: Path, suffix: str = ""
) -> list[Path]:
  """Draws several runs over each other into a directory.

  Args:
    runs: that learn the same data.
    directory: where to.
    suffix: of the names of the files.
  """
  with matplotlib.rc_context(drawing.STYLE):
    return [
      drawing.save(item._replace(name=item.name + suffix), directory)
      for draw in COMPARISONS
      for item in draw(runs)
    ]
