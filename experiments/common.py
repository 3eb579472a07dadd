"""The flags that experiments share, and how a command ends.

A flag that is not given takes the value of the preset.
"""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import logging
from pathlib import Path
import sys
from typing import Any

from absl import app, flags

from experiments import workdir as workdir_lib
from experiments.settings import (
  METHODS,
  NETWORKS,
  TRANSFERS,
  Settings,
  UserError,
)
from mnemonics_jax import data
from mnemonics_jax.data import DataError, Dataset
from mnemonics_jax.protocol import ProtocolError
from mnemonics_jax.report import WorkdirError

FLAGS = flags.FLAGS

# Methods and data.
flags.DEFINE_enum(
  "method",
  None,
  METHODS,
  "Base method. lwf, bic and lucir are reported by their head, icarl by the"
  " nearest mean of exemplars; joint is the upper bound, which keeps all data.",
)
flags.DEFINE_enum(
  "exemplars",
  None,
  ["random", "herding", "mnemonics"],
  "Exemplars of a class: chosen among its images at random or by herding, or"
  " learned by bilevel optimisation (mnemonics).",
)
flags.DEFINE_enum(
  "init_exemplars",
  None,
  ["random", "herding"],
  "Start images of --exemplars=mnemonics.",
)
flags.DEFINE_bool(
  "adjust",
  None,
  "Adjust the old exemplars in every phase, one half validated by the other.",
)
flags.DEFINE_enum(
  "recipe",
  None,
  ["tuned", "paper"],
  "How exemplars are learned. tuned: on frozen features within a trust region;"
  " paper: the paper's letter, an unroll of the whole network (slow on a CPU).",
)
flags.DEFINE_enum(
  "scope",
  None,
  ["head", "transfer", "all"],
  "What the base level trains on the exemplars; the default is the recipe's.",
)
flags.DEFINE_integer(
  "max_change",
  None,
  "Trust region of learned exemplars in grey levels: how far a pixel may move"
  " from its start image, and again in each adjustment.",
)
flags.DEFINE_integer("meta_epochs", None, "Epochs of the exemplar level.")
flags.DEFINE_bool(
  "augment_exemplars",
  None,
  "Whether exemplars are augmented while they are learned.",
)
flags.DEFINE_string(
  "memory",
  None,
  "What may be kept of old classes: per_class:20 (20 images of every class) or"
  " total:2000 (2000 images altogether, fewer per class as classes arrive).",
)
flags.DEFINE_enum(
  "transfer",
  None,
  TRANSFERS,
  "Weight transfer: learn scales and shifts over frozen weights after phase 0,"
  " one scale per kernel slice (in_out) or per output channel (out).",
)
flags.DEFINE_enum(
  "finetune",
  None,
  ["none", "head", "all"],
  "What the balanced fine-tune on the memory trains at the end of each phase.",
)
flags.DEFINE_bool(
  "distill",
  None,
  "Whether the old model's knowledge enters the loss (--nodistill drops it).",
)

# Protocol.
flags.DEFINE_integer(
  "phases",
  None,
  "N: phases after the base phase; the remaining classes are spread evenly.",
)
flags.DEFINE_integer(
  "base_classes",
  None,
  "Classes of phase 0. The default is half of all; with 0 the first of the"
  " --phases is phase 0.",
)
flags.DEFINE_integer(
  "order_seed", None, "Seed of the order in which classes arrive."
)
flags.DEFINE_list(
  "seeds",
  None,
  "Trains once per seed, such as 0,1,2: initialisation, sampling and"
  " augmentation differ, the class order does not. Results are given as mean"
  " and 95 % confidence interval.",
)

# Training.
flags.DEFINE_enum(
  "preset",
  "short",
  ["paper", "short", "smoke"],
  "paper: the paper's network and schedule to the letter, for an accelerator;"
  " short: reduced to what 2 CPU cores can do; smoke: minutes, only to see"
  " that everything works. Single flags override the preset.",
)
flags.DEFINE_enum("net", None, NETWORKS, "Network.")
flags.DEFINE_integer("epochs", None, "Epochs of every phase after phase 0.")
flags.DEFINE_integer("base_epochs", None, "Epochs of phase 0.")
flags.DEFINE_integer("batch_size", None, "Images per training step.")
flags.DEFINE_float(
  "learning_rate", None, "Initial rate of SGD; divided by 10 twice."
)
flags.DEFINE_float("weight_decay", None, "L2 regularisation.")
flags.DEFINE_integer("finetune_epochs", None, "Epochs of the fine-tune.")
flags.DEFINE_float(
  "finetune_learning_rate", None, "Constant rate of the fine-tune."
)
flags.DEFINE_integer(
  "images_per_class",
  None,
  "Train on only the first images of each class; for quick trials.",
)

# Files.
flags.DEFINE_string(
  "workdir",
  None,
  "Where results go. The default is a directory below runs/ named after the"
  " settings; running the same command again uses what has finished there.",
)
flags.DEFINE_bool(
  "fresh", False, "Start over in a new directory; the old one stays."
)
flags.DEFINE_string(
  "base_models",
  None,
  "Directory for models of phase 0. Runs that name the same one train those"
  " they have in common only once; the numbers do not change.",
)
flags.DEFINE_bool("tensorboard", True, "Also write TensorBoard events.")


def settings_from_flags(
  dataset: str, presets: Mapping[str, Mapping[str, Any]], **own: Any
) -> Settings:
  """The preset, overridden by every flag that was given.

  Args:
    dataset: name of the data set.
    presets: for each --preset the fields that differ from the defaults.
    **own: settings that only this experiment has.
  """
  preset = FLAGS.preset
  fields = {field.name for field in dataclasses.fields(Settings)}
  given = {
    name: FLAGS[name].value
    for name in fields & set(FLAGS)
    if FLAGS[name].value is not None
  }
  if "seeds" in given:
    try:
      given["seeds"] = tuple(int(seed) for seed in given["seeds"])
    except ValueError:
      raise UserError(
        f"--seeds={','.join(given['seeds'])} is not a list of whole numbers;"
        " write --seeds=0,1,2."
      ) from None
  values = {"dataset": dataset, "preset": preset, **presets[preset]}
  if given.get("method") == "joint":
    # The upper bound replays real data; exemplars only serve its nme read-out.
    values["exemplars"] = "herding"
  return Settings(**(values | given | own))


def run_experiment(settings: Settings, load: Callable[[], Dataset]) -> None:
  """Loads, runs, prints the table and writes the report."""
  # Imported here so that a mistake in the flags is answered at once.
  from experiments.run import run
  from mnemonics_jax import report

  dataset = load()
  workdir = Path(FLAGS.workdir or workdir_lib.default(settings))
  if FLAGS.fresh:
    workdir = workdir_lib.fresh(workdir)
  base_models = Path(FLAGS.base_models) if FLAGS.base_models else None
  results = run(settings, dataset, workdir, FLAGS.tensorboard, base_models)
  print(f"\n{report.console_table(results)}\n")
  print(f"Report: {report.build([workdir])}")


def load_data(name: str, data_dir: str | None, **options: Any) -> Dataset:
  """Loads a data set and shows how far decoding has come."""
  from rich import console, progress

  out = console.Console(stderr=True)
  with progress.Progress(console=out, transient=True) as display:
    task = display.add_task(f"Reading {name}", total=None)
    advance = lambda done, total: display.update(
      task, completed=done, total=total
    )
    return data.load(name, data_dir, progress=advance, **options)


def run_main(
  main: Callable[[Sequence[str]], None], *, arguments: bool = False
) -> None:
  """Runs `main` as a command; a user's mistake is one sentence and exit 2.

  Args:
    main: called with the command line that is left after the flags.
    arguments: whether `main` takes arguments that are not flags.
  """

  def parse(argv):
    try:
      return FLAGS(argv)
    except flags.Error as error:
      _refuse(f"{error} (--help lists all flags)")

  def guarded(argv):
    try:
      if len(argv) > 1 and not arguments:
        raise UserError(
          f"{argv[1]!r} is not a flag; flags look like --phases=5."
        )
      main(argv)
    except (UserError, ProtocolError, DataError, WorkdirError) as error:
      _refuse(str(error))

  # They tell which accelerators and fonts they found; nobody asked.
  for library in ("jax", "matplotlib"):
    logging.getLogger(library).setLevel(logging.WARNING)
  app.run(guarded, flags_parser=parse)


def _refuse(message):
  print(f"error: {message}", file=sys.stderr)
  sys.exit(2)
