"""Rebuilds the page of a run, or compares several runs on one page.

  python -m experiments.report WORKDIR              writes WORKDIR/report.html
  python -m experiments.report WORKDIR WORKDIR...   writes comparison.html into
                                                    the first WORKDIR

Takes a few seconds per run. Only finished runs can be reported on.
"""

from collections.abc import Sequence

from absl import flags

from experiments import common
from mnemonics_jax import report

_OUTPUT = flags.DEFINE_string(
  "output",
  None,
  "The page to write, or a directory for it. By default WORKDIR/report.html, or"
  " comparison.html in the first of several work directories.",
)


def main(argv: Sequence[str]) -> None:
  try:
    print(report.build(argv[1:], _OUTPUT.value))
  except OSError as error:
    raise report.WorkdirError(f"The page cannot be written: {error}.") from None


if __name__ == "__main__":
  common.run_main(main, arguments=True)
