"""Learns more classes in a copy of a finished run.

  python -m experiments.extend RUN --data=DIR --workdir=NEW

RUN is the work directory of a run; it stays as it is, and its data are not needed.
DIR holds <class>/*.jpg or train/<class>/*.jpg, and perhaps val/<class>/*, as for
experiments.folder. Classes that RUN does not know become further phases of the
copy in NEW, with RUN's method, schedule and memory. Of classes that it knows only
test images are taken: those in val/, or a part that is held out.

The report shows the old phases and the new ones. Where there are no test images
of an old class, it says so: accuracies are then over the classes that have some.
The same command continues after an interruption.
"""

from collections.abc import Sequence
from pathlib import Path

from absl import flags

from experiments import command, folder, launch, learned, running
from mnemonics_jax.errors import UserError

FLAGS = flags.FLAGS
_FLAGS = (
  *("data", "workdir", "phases", "val_fraction", "strict"),
  *("checkpoint_every", "keep", "patience", "tensorboard", "devices"),
)
for _name in _FLAGS:  # Those that `folder` has, too.
  flags.declare_key_flag(_name)
del folder

USAGE = "python -m experiments.extend RUN --data=DIR --workdir=NEW"


def main(argv: Sequence[str]) -> None:
  run = learned.argument(argv, USAGE)
  if len(argv) > 2:
    raise UserError("run", f"{argv[2]!r} is not a flag", "name one RUN")
  command.check_flags(__name__, "RUN has decided it")
  for name in ("data", "workdir"):
    if not FLAGS[name].value:
      raise UserError(name, f"`{name}` is missing", f"write {USAGE}")
  _extend(run, running.directory("workdir", Path()), _phases())


def _phases() -> int:
  """--phases, by default one."""
  given = FLAGS.phases or ["1"]
  if len(given) != 1 or not given[0].isdecimal() or int(given[0]) < 1:
    raise UserError(
      "phases",
      f"`phases={','.join(given)}` is not one whole number from 1",
      "write `phases=2`",
    )
  return int(given[0])


@launch.computing()
def _extend(run: Path, workdir: Path, phases: int) -> None:
  """Loads, learns, prints the table and writes the report."""
  # Imported here so that a mistake in the flags is answered at once.
  from mnemonics_jax import runs
  from mnemonics_jax.runs import learners

  runs.load_run(run)  # Which says what is wrong with it.
  size = _size(learners.run_config(run).network.image_shape)
  fraction = 0.2 if FLAGS.val_fraction is None else FLAGS.val_fraction
  dataset = running.load_data(
    "folder",
    FLAGS.data,
    image_size=size,
    val_fraction=fraction,
    strict=FLAGS.strict,
    least_classes=1,
  )
  with running.followed(f"Results go to {workdir}.") as hear:
    results = runs.extend(
      run,
      dataset,
      workdir,
      phases=phases,
      about={"extended_from": FLAGS.data, "extended_val_fraction": fraction},
      saving=running.saving_policy(),
      tensorboard=FLAGS.tensorboard,
      advice=running.CONTINUE,
      report=hear,
    )
  running.show(results, workdir)


def _size(shape):
  """The side of the squares that a folder's images become."""
  height, width, channels = shape
  if height != width or channels != 3:
    raise UserError(
      "run",
      f"RUN learned from images of {height}×{width}×{channels}, and a folder's"
      " become squares of three colours",
      "use Learner.load and learn",
    )
  return height


if __name__ == "__main__":
  command.run(main, arguments=True)
