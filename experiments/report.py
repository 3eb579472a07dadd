"""Rebuilds the page of a run, or compares several runs on one page.

  python -m experiments.report WORKDIR              writes WORKDIR/report.html
  python -m experiments.report WORKDIR WORKDIR...   writes comparison.html into
                                                    the first WORKDIR

A comparison links the pages of its runs, which are written, too. Runs that learn
other data are shown apart: only accuracies on the same images can be compared.
Takes a few seconds per run. A run that has not ended is shown as far as it came.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from experiments import command, workdirs
from mnemonics_jax import report
from mnemonics_jax.errors import UserError

_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "The page to write, or a directory for it. By default WORKDIR/report.html, or"
  " comparison.html in the first of several work directories.",
)


def main(argv: Sequence[str]) -> None:
  try:
    if _OUTPUT.value is not None:
      _check_output(Path(_OUTPUT.value))
    page = report.build(argv[1:], _OUTPUT.value)
  except OSError as error:
    raise UserError(
      "output",
      f"The page cannot be written ({error})",
      "name another one with `output`",
    ) from None
  print(page)


def _check_output(path: Path) -> None:
  """Refuses to put a page where something else is, or could not be."""
  page = not path.is_dir()
  other = path.exists() and not path.is_file()
  if page and (path.suffix != ".html" or other):
    raise UserError(
      "output",
      f"`output={path}` is neither a directory nor a page",
      "choose a directory that exists or a name that ends in .html",
    )
  workdirs.check("output", path.parent if page else path)


if __name__ == "__main__":
  command.run(main, arguments=True)
