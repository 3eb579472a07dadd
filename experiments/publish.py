"""Publishes the model of phase 0, so that others can begin with phase 1.

  python -m experiments.publish MODEL RUN DIR

MODEL is a directory below the one that a run had as --base_models, RUN the work
directory of that run. DIR, which must be new, gets

  model.safetensors   the arrays
  base_model.json     classes, network, schedule, accuracy, commit
  manifest.json       checksums of both

--base_models=PARENT_OF_DIR finds it for runs that would train the same model,
--base_model=DIR and Learner(base_model=DIR) take it for others.
"""

from collections.abc import Sequence

from absl.flags import FlagValues

from experiments import command, flags
from mnemonics_jax.errors import UserError

FLAGS = FlagValues()


def main(arguments: Sequence[str]) -> None:
  if len(arguments) != 3:
    raise UserError(
      "arguments",
      "MODEL, RUN and DIR are needed",
      "write python -m experiments.publish MODEL RUN DIR",
    )
  model, run, to = map(flags.path, arguments)
  flags.check_directory("to", to)
  # Imported here so that a mistake is answered at once.
  from mnemonics_jax.runs import base_models

  about = base_models.publish(model, run, to)
  shares = ", ".join(
    f"{name} {100 * share:.2f} %" for name, share in about["accuracy"].items()
  )
  print(
    f"{len(about['class_names'])} classes of {about['dataset']} ({shares}) are in"
    f" {to}."
  )


if __name__ == "__main__":
  with command.session(__doc__, FLAGS, arguments=True) as given:
    main(given)
