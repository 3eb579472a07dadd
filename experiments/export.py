"""Exports a trained run to files that other programs read.

  python -m experiments.export RUN --to=DIR

RUN is the work directory of a run, or one of Learner.save. DIR, which must be new
or empty, gets

  train/<class>/NNN.png   the exemplars, to look at or to learn from again:
                          python -m experiments.folder --data=DIR
  labels.csv              the class of each exemplar
  model.safetensors       the weights
  model.json              network, classes, normalisation
  manifest.json           checksums of all files

Learner.load(DIR) and experiments.predict read it again.
"""

from collections.abc import Sequence

from absl.flags import DEFINE_string, FlagValues

from experiments import command, flags, names
from mnemonics_jax.errors import UserError

FLAGS = FlagValues()
names.define(FLAGS, "seed", "phase", "network")
DEFINE_string(
  "to", None, "The directory to write; new or empty.", flag_values=FLAGS
)


def main(arguments: Sequence[str]) -> None:
  usage = "python -m experiments.export RUN --to=DIR"
  run = names.run_directory(arguments, usage)
  if len(arguments) > 1:
    raise UserError(
      "run", f"{arguments[1]!r} is not a flag", "name one RUN, and --to"
    )
  if not FLAGS.to:
    raise UserError("to", "`to` is missing", "--to=DIR names a new directory")
  to = flags.path(FLAGS.to)
  flags.check_directory("to", to)
  # Imported here so that a mistake in the flags is answered at once.
  from mnemonics_jax import runs

  learner, known = names.load(run, FLAGS)
  runs.export(learner, known, to)
  images, _ = known.exemplars
  print(
    f"{len(known.names)} classes after phase {known.state.phase - 1} of seed"
    f" {learner.seed}: {len(images)} exemplars and the weights are in {to}."
  )


if __name__ == "__main__":
  with command.session(__doc__, FLAGS, arguments=True) as given:
    main(given)
