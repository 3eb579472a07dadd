"""Rebuilds the page of a run, or compares several runs on one page.

  python -m experiments.report WORKDIR              writes WORKDIR/report.html
  python -m experiments.report WORKDIR WORKDIR...   writes comparison.html into
                                                    the first WORKDIR

Takes a few seconds per run. Only finished runs can be reported on.
"""

from collections.abc import Sequence
import sys

from absl import app, flags

from mnemonics_jax import report

_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "The page to write. By default WORKDIR/report.html, or comparison.html in "
  "the first of several work directories.",
)


def main(argv: Sequence[str]) -> None:
  if len(argv) < 2:
    raise app.UsageError(
      "Name the work directory of a finished run: "
      "python -m experiments.report WORKDIR [WORKDIR...]"
    )
  try:
    print(report.build(argv[1:], _OUTPUT.value))
  except report.WorkdirError as error:
    sys.exit(_refuse(str(error)))
  except OSError as error:
    sys.exit(_refuse(f"Cannot write the report: {error}."))


def _refuse(sentence: str) -> int:
  print(sentence, file=sys.stderr)
  return 2


if __name__ == "__main__":
  app.run(main)
