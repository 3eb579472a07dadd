"""The flags that experiments share, and what they ask for.

A flag that is not given takes the value of the preset.
"""

from collections.abc import Callable, Mapping
import dataclasses
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments import launch
from experiments import workdir as workdir_lib
from experiments.settings import (
  METHODS,
  NETWORKS,
  TRANSFERS,
  Settings,
  UserError,
  check_effect,
)
from experiments.stopping import CONTINUE
from mnemonics_jax import data
from mnemonics_jax.data import Dataset

if TYPE_CHECKING:
  from experiments.saving import Policy

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(launch)

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
flags.DEFINE_integer(
  "exemplar_chunk",
  None,
  "Classes whose exemplars are learned at a time, for devices whose memory does"
  " not hold an unroll over all of them. The default is all.",
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
flags.DEFINE_list(
  "phases",
  None,
  "N: phases after the base phase; the remaining classes are spread evenly."
  " A table takes several, such as 5,10,25; a run takes one.",
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
flags.DEFINE_enum(
  "dtype",
  None,
  ["float32", "bfloat16"],
  "Type of activations. bfloat16 is faster and smaller on TPUs and new GPUs;"
  " parameters, statistics, losses and exemplars stay float32.",
)
flags.DEFINE_bool(
  "remat",
  None,
  "Store only the input of each block for the backward pass and compute the rest"
  " again: a third more work, the same numbers. On GPU and TPU; XLA's scheduling"
  " for CPUs saves nothing by it.",
)

# Files.
flags.DEFINE_string(
  "workdir",
  None,
  "Where results go. The default is a directory below runs/ named after the"
  " settings; running the same command again uses what has finished there.",
)
flags.DEFINE_bool(
  "fresh",
  False,
  "Start over in a new directory; the old one stays. To"
  " continue what it has begun, name the new one with --workdir instead.",
)
flags.DEFINE_float(
  "checkpoint_every",
  180.0,
  "Seconds between checkpoints within a phase; there is one after every phase,"
  " too. The same command continues from the newest.",
)
flags.DEFINE_integer(
  "keep",
  None,
  "Checkpoints of phases to keep for each seed, the newest ones; the default is"
  " all of them.",
)
flags.DEFINE_string(
  "base_models",
  None,
  "Directory for models of phase 0. Runs that name the same one train those"
  " they have in common only once; the numbers do not change.",
)
flags.DEFINE_bool("tensorboard", True, "Also write TensorBoard events.")


def given_settings() -> dict[str, Any]:
  """The settings for which a flag was given; phases and seeds as tuples."""
  fields = {field.name for field in dataclasses.fields(Settings)}
  given = {
    name: FLAGS[name].value
    for name in sorted(fields & set(FLAGS) - {"dataset", "preset"})
    if FLAGS[name].value is not None
  }
  for name in {"phases", "seeds"} & given.keys():
    try:
      given[name] = tuple(int(number) for number in given[name])
    except ValueError:
      raise UserError(
        f"--{name}={','.join(given[name])} is not a list of whole numbers;"
        f" write --{name}={'5' if name == 'phases' else '0,1,2'}."
      ) from None
  return given


def settings_from_flags(
  dataset: str, presets: Mapping[str, Mapping[str, Any]], **own: Any
) -> Settings:
  """The preset, overridden by every flag that was given.

  Args:
    dataset: name of the data set.
    presets: for each --preset the fields that differ from the defaults.
    **own: settings that only this experiment has.
  """
  preset, given = FLAGS.preset, given_settings()
  if "phases" in given:
    if len(given["phases"]) != 1:
      raise UserError(
        f"--phases={','.join(map(str, given['phases']))} is not one number,"
        " which a run takes; write --phases=5."
      )
    (given["phases"],) = given["phases"]
  values = {"dataset": dataset, "preset": preset, **presets[preset]}
  if given.get("method") == "joint":
    # The upper bound replays real data; exemplars only serve its nme read-out.
    values["exemplars"] = "herding"
  settings = Settings(**(values | given | own))
  check_effect(settings, given)
  return settings


@launch.computing()
def run_experiment(settings: Settings, load: Callable[[], Dataset]) -> None:
  """Loads, runs, prints the table and writes the report."""
  # Imported here so that a mistake in the flags is answered at once.
  from experiments.run import run
  from mnemonics_jax import report

  saving = saving_policy()
  workdir = directory("workdir", workdir_lib.default(settings))
  base_models = directory("base_models")
  dataset = load()
  how = CONTINUE
  if FLAGS.fresh:
    workdir = workdir_lib.fresh(workdir)
    how = f"To continue, give --workdir={workdir} instead of --fresh."
  results = run(
    settings,
    dataset,
    workdir,
    tensorboard=FLAGS.tensorboard,
    base_models=base_models,
    saving=saving,
    how=how,
  )
  print(f"\n{report.console_table(results)}\n")
  print(f"Report: {report.build([workdir])}")


def saving_policy() -> "Policy":
  """When checkpoints are written and which are kept, by the flags."""
  every, keep = FLAGS.checkpoint_every, FLAGS.keep
  if not 0 <= every < float("inf"):
    raise UserError(
      f"--checkpoint_every={every} must be 0 or more seconds; 180 is usual."
    )
  if keep is not None and keep < 1:
    raise UserError(f"--keep={keep} must be 1 or more; leave it out for all.")
  from experiments.saving import Policy

  return Policy(every, keep)


def directory(flag: str, default: Path | None = None) -> Path | None:
  """The directory that a flag names, if it is there or can be made."""
  given = FLAGS[flag].value
  path = default if given is None else Path(given).expanduser()
  if path is None:
    return None
  check_directory(flag, path)
  return launch.own(path)


def check_directory(flag: str, path: Path) -> None:
  """Refuses what is no directory and could not become one."""
  try:
    nearest = next(
      part for part in (path, *path.absolute().parents) if part.exists()
    )
    if not nearest.is_dir():
      problem = f"{nearest} is not a directory"
    elif not os.access(nearest, os.W_OK | os.X_OK):
      problem = f"{nearest} may not be written"
    else:
      return
  except OSError as error:
    problem = error.strerror
  raise UserError(
    f"--{flag}={path} cannot be used ({problem}); choose another one."
  )


def load_data(name: str, data_dir: str | None, **options: Any) -> Dataset:
  """Loads a data set and shows how far decoding has come."""
  from rich import console, progress

  out = console.Console(stderr=True)
  with progress.Progress(
    console=out, transient=True, disable=not out.is_terminal
  ) as display:
    task = display.add_task(f"Reading {name}", total=None)
    advance = lambda done, total: display.update(
      task, completed=done, total=total
    )
    return data.load(
      name, data_dir, progress=advance, share=launch.share(), **options
    )
