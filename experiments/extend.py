"""Learns more classes in a copy of a finished run.

  python -m experiments.extend RUN --data=DIR --workdir=NEW

RUN is the work directory of a run, or one of Learner.save or experiments.export.
It stays as it is, and its data are not needed.
DIR holds <class>/*.jpg or train/<class>/*.jpg, and perhaps val/<class>/*, as for
experiments.folder, with the --class_names of RUN, if it had some. Classes that RUN
does not know become further phases of the copy in NEW, with RUN's method, schedule
and memory. Of classes that it knows only test images are taken: those in val/, or a
part that is held out.

The report shows the old phases and the new ones. Where there are no test images
of an old class, it says so: accuracies are then over the classes that have some.
The same command continues a copy of a run after an interruption. If RUN is a learner,
NEW is a learner, too: it is saved after each phase, and there is no report. A command
that was interrupted then begins again, in a new directory.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl.flags import DEFINE_integer, FlagValues
import numpy as np

from experiments import command, flags, launch, names, running
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import layout
from mnemonics_jax.settings import Command, Settings

if TYPE_CHECKING:
  from mnemonics_jax.data import Dataset

# A run uses these, a learner does not.
_OF_RUNS = ("checkpoint_every", "keep", "patience", "tensorboard")

FLAGS = FlagValues()
flags.define(FLAGS, Settings, only=["data"])
flags.define(
  FLAGS, Command, defaults=True, only=["workdir", "devices", *_OF_RUNS]
)
flags.define_options(FLAGS, ["folder"], leave_out=["image_size"])
names.define(FLAGS, "network", "class_names")
DEFINE_integer(
  "phases",
  1,
  "Number of phases; the new classes are spread evenly over them.",
  flag_values=FLAGS,
)

USAGE = "python -m experiments.extend RUN --data=DIR --workdir=NEW"


def main(arguments: Sequence[str]) -> None:
  run = names.run_directory(arguments, USAGE)
  if len(arguments) > 1:
    raise UserError("run", f"{arguments[1]!r} is not a flag", "name one RUN")
  for name in ("data", "workdir"):
    if not FLAGS[name].value:
      raise UserError(name, f"`{name}` is missing", f"write {USAGE}")
  if FLAGS.phases < 1:
    raise UserError(
      "phases",
      f"`phases={FLAGS.phases}` is not a whole number from 1",
      "write `phases=2`",
    )
  workdir = flags.path(FLAGS.workdir)
  flags.check_directory("workdir", workdir)
  teach = _extend if layout.config_path(run).exists() else _extend_learner
  with launch.computing(FLAGS):
    teach(run, workdir)


def _extend(run: Path, workdir: Path) -> None:
  """Extends a run: loads, learns, prints the table and writes the report."""
  # Imported here so that a mistake in the flags is answered at once.
  from mnemonics_jax import runs
  from mnemonics_jax.runs import learners

  known = runs.load_run(run).results["class_names"]
  network = names.network(FLAGS)
  config = learners.run_config(run, network)
  dataset = _load(config.network.image_shape, known)
  opening = f"Results go to {workdir}."
  with running.followed(opening, FLAGS, workdir) as hear:
    results = runs.extend(
      run,
      dataset,
      workdir,
      phases=FLAGS.phases,
      network=network,
      about={
        "extended_from": FLAGS.data,
        "extended_val_fraction": _val_fraction(),
      },
      saving=running.saving_policy(FLAGS),
      tensorboard=FLAGS.tensorboard,
      advice=running.CONTINUE,
      report=hear,
    )
  running.show(results, workdir, FLAGS)


def _extend_learner(path: Path, workdir: Path) -> None:
  """Extends a learner, which needs no flags of a run."""
  for name in _OF_RUNS:
    if FLAGS[name].present:
      raise UserError(
        name, f"`{name}` has no effect on a learner", "leave it out"
      )
  # Imported here so that a mistake in the flags is answered at once.
  from mnemonics_jax.runs import claim

  with claim.reserved(workdir):
    if workdir.exists():
      raise UserError(
        "workdir", f"`workdir={workdir}` exists", "choose a new directory"
      )
    _teach(path, workdir)


def _teach(path, workdir):
  """Teaches the learner in `path`, and saves it to `workdir` after each phase."""
  from mnemonics_jax import protocol
  from mnemonics_jax.data.stream import Extension, StreamShape
  from mnemonics_jax.runs import extending

  learner, known = names.load(path, FLAGS)
  shape = tuple(known.network.image_shape)
  before = [str(name) for name in known.names]
  sizes = (0,) * len(before)  # Which do not matter to what follows.
  stream = Extension(
    _load(shape, before),
    before,
    StreamShape(sizes, known.phases, image_shape=shape),
    FLAGS.phases,
  )
  for note in extending.untested(stream):
    print(f"Note: {note}")
  called = np.array([*known.names, *stream.class_names[len(sizes) :]], object)
  for phase in range(len(known.phases), len(stream)):
    data = stream[phase]
    test = data.test_images, called[data.test_labels]
    known = learner.learn(
      known,
      data.images,
      called[data.labels],
      test=test if len(data.test_labels) else None,
    )
    learner.save(known, workdir)
    measured = "nothing to test on"
    if known.result is not None:
      measured = " · ".join(
        f"{name} {100 * protocol.accuracy(counts):.1f} %"
        for name, counts in known.result.confusion["final"].items()
      )
    print(f"phase {phase} · {len(known.names)} classes · {measured}")
  print(f"Learner: {workdir}")


def _val_fraction() -> float:
  return 0.2 if FLAGS.val_fraction is None else FLAGS.val_fraction


def _load(shape: Sequence[int], learned: Sequence[str]) -> "Dataset":
  """The images in --data, of the size that was learned, and with its names."""
  called = names.class_names(FLAGS)
  dataset = running.load_data(
    "folder",
    FLAGS.data,
    image_size=_size(shape),
    val_fraction=_val_fraction(),
    strict=FLAGS.strict,
    least_classes=1,
  )
  return names.rename_classes(dataset, called, dataset.name, learned)


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
  decided = dict.fromkeys(
    flags.of_run("folder"), "leave it out: RUN has decided it"
  )
  with command.session(
    __doc__, FLAGS, arguments=True, instead=decided
  ) as given:
    main(given)
