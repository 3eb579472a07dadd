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

from absl.flags import DEFINE_string, FlagValues

from experiments import command, flags
from mnemonics_jax import report
from mnemonics_jax.errors import UserError

FLAGS = FlagValues()
DEFINE_string(
  "output",
  None,
  "The page to write, or a directory for it. By default WORKDIR/report.html, or"
  " comparison.html in the first of several work directories. Figures are written"
  " beside the page.",
  flag_values=FLAGS,
)


def main(arguments: Sequence[str]) -> None:
  output = None if FLAGS.output is None else flags.path(FLAGS.output)
  try:
    if output is not None:
      _check(output)
    page = report.build([*map(flags.path, arguments)], output)
  except OSError as error:
    raise UserError(
      "output",
      f"The page cannot be written ({error})",
      "name another one with `output`",
    ) from None
  print(page)


def _check(output: Path) -> None:
  """Refuses to put a page where something else is, or could not be."""
  page = not output.is_dir()
  other = output.exists() and not output.is_file()
  if page and (output.suffix != ".html" or other):
    raise UserError(
      "output",
      f"`output={output}` is neither a directory nor a page",
      "choose a directory that exists or a name that ends in .html",
    )
  flags.check_directory("output", output.parent if page else output)


if __name__ == "__main__":
  with command.session(__doc__, FLAGS, arguments=True) as given:
    main(given)
