"""What a finished run has learned, in files that other programs read.

  python -m experiments.export RUN --to=DIR

RUN is the work directory of a run, or one of Learner.save. DIR, which must be new
or empty, gets

  train/<class>/NNN.png   the exemplars, to look at or to learn from again:
                          python -m experiments.folder --data=DIR
  labels.csv              the class of each exemplar
  model.safetensors       the weights
  model.json              network, classes, normalisation

Learner.load(DIR) and experiments.predict read it again.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from experiments import command, learned, workdirs
from mnemonics_jax.errors import UserError

flags.adopt_module_key_flags(learned)
_TO = flags.DEFINE_string("to", None, "The directory to write; new or empty.")


def main(argv: Sequence[str]) -> None:
  run = learned.argument(argv, "python -m experiments.export RUN --to=DIR")
  if len(argv) > 2:
    raise UserError(
      "run", f"{argv[2]!r} is not a flag", "name one RUN, and --to"
    )
  if not _TO.value:
    raise UserError("to", "`to` is missing", "--to=DIR names a new directory")
  to = Path(_TO.value).expanduser()
  workdirs.check("to", to)
  # Imported here so that a mistake in the flags is answered at once.
  from mnemonics_jax import runs

  learner, known = learned.load(run)
  runs.export(learner, known, to)
  images, _ = known.exemplars
  print(
    f"{len(known.names)} classes after phase {known.state.phase - 1} of seed"
    f" {learner.seed}: {len(images)} exemplars and the weights are in {to}."
  )


if __name__ == "__main__":
  command.run(main, arguments=True)
