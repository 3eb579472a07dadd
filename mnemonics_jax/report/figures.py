"""All figures of a run, and of several."""

from collections.abc import Callable, Iterator, Sequence
import os
from pathlib import Path

from mnemonics_jax.report import draw, lines, maps, pictures
from mnemonics_jax.runs.finished import Run, load_run

# A new figure is a function here and a section of the page that embeds it.
DRAWERS: tuple[Callable[[Run], Iterator[draw.Drawing]], ...] = (
  lines.phase_curve,
  lines.moment_curves,
  pictures.accuracy_matrices,
  pictures.confusion_matrices,
  lines.training_curves,
  lines.exemplar_distances,
  pictures.grids,
  maps.feature_map,
  pictures.memory_grid,
)

COMPARISONS: tuple[Callable[[Sequence[Run]], Iterator[draw.Drawing]], ...] = (
  lines.comparison_curves,
  maps.comparison_map,
  lines.comparison_distances,
)


def write_figures(workdir: str | os.PathLike[str] | Run) -> list[Path]:
  """Draws a run into WORKDIR/figures: NAME.png and NAME.csv for each."""
  run = workdir if isinstance(workdir, Run) else load_run(workdir)
  drawings = (item for drawer in DRAWERS for item in drawer(run))
  return draw.save_all(drawings, run.path / "figures")


def write_comparison(
  runs: Sequence[Run], directory: Path, suffix: str = ""
) -> list[Path]:
  """Draws several runs over each other into a directory.

  Args:
    runs: that learn the same data.
    directory: where to.
    suffix: of the names of the files.
  """
  drawings = (item for drawer in COMPARISONS for item in drawer(runs))
  named = (item._replace(name=item.name + suffix) for item in drawings)
  return draw.save_all(named, directory)
