"""A command's run: what the flags ask for, from data to the report page."""

from collections.abc import Callable, Iterator
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl import flags

from experiments import command, launch, options, paper, workdirs
from mnemonics_jax import data
from mnemonics_jax.data import Dataset
from mnemonics_jax.errors import UserError
from mnemonics_jax.progress import DataReport, Event, Note, PhaseEnds, Report
from mnemonics_jax.settings import Settings
from mnemonics_jax.settings.build import build

if TYPE_CHECKING:
  from mnemonics_jax.runs import Policy

FLAGS = flags.FLAGS
flags.adopt_module_key_flags(options)

CONTINUE = "The same command continues from there."


@launch.computing()
def run_experiment(settings: Settings, load: Callable[[], Dataset]) -> None:
  """Loads, runs, prints the table and writes the report."""
  saving = saving_policy()
  # What cannot be written to is told before data are read.
  workdirs.check("workdir", Path(FLAGS.workdir or "runs").expanduser())
  base_models = optional_directory("base_models")
  dataset = load()
  default = workdirs.default(settings, dataset.checksum)
  workdir = directory("workdir", default)
  advice = CONTINUE
  if FLAGS.fresh:
    workdir = workdirs.fresh(workdir)
    advice = f"To continue, give --workdir={workdir} instead of --fresh."
  with _offering_fresh():
    results = run(
      settings,
      dataset,
      workdir,
      tensorboard=FLAGS.tensorboard,
      base_models=base_models,
      saving=saving,
      advice=advice,
    )
  show(results, workdir)


def show(results: dict[str, Any], workdir: Path) -> None:
  """What a command ends with: the table, a warning perhaps, the page."""
  from mnemonics_jax import report
  from mnemonics_jax.parallel import processes

  if not processes.is_first():
    return
  print(f"\n{report.console_table(results)}\n")
  if warning := report.warning(report.load_run(workdir)):
    print(f"{command.in_flags(warning)}\n")
  print(f"Report: {report.build([workdir])}")


def run(
  settings: Settings, dataset: Dataset, workdir: Path, **options: Any
) -> dict[str, Any]:
  """`runs.run` for these settings, shown on the console.

  Args:
    settings: of the run.
    dataset: what it learns.
    workdir: where everything is written.
    **options: more arguments of `runs.run`.
  """
  from experiments import opening
  from mnemonics_jax import runs

  config, stream = build(settings, dataset)
  words = opening.describe(settings, config, stream, workdir)
  title = f"{stream.name} · {settings.title}"
  departures = (*paper.departures(settings), *stream.departures)
  schedule = "reduced" if departures else "paper"
  with followed(words) as console:

    def hear(event: Event) -> None:
      console(event)
      if isinstance(event, PhaseEnds) and FLAGS.report_every_phase:
        _write_page(workdir)

    return runs.run(
      config,
      stream,
      workdir,
      seeds=settings.seeds,
      settings=settings.identity(),
      base_model=settings.base_model,
      labels=runs.Labels(title, settings.preset, schedule, departures),
      report=hear,
      **options,
    )


def _write_page(workdir: Path) -> None:
  """The page of a run that goes on."""
  from mnemonics_jax import report
  from mnemonics_jax.parallel import processes

  if processes.is_first():
    report.build([workdir])


@contextlib.contextmanager
def followed(opening: str) -> Iterator[Report]:
  """A console that hears of a run and speaks of flags.

  Args:
    opening: printed when the run begins.
  """
  from mnemonics_jax.report.console import Console

  with Console(opening) as console, _naming_flags_to_try():
    yield lambda event: console(_in_flags(event))


def _in_flags(event: Event) -> Event:
  """What the library says, with its settings as flags."""
  if isinstance(event, Note):
    return Note(command.in_flags(event.text))
  return event


# What to try when a stage diverges.
_ADVICE = {
  "train": "try a lower `learning_rate`, which usually helps",
  "finetune": "try a lower `finetune_learning_rate`, which usually helps",
  "exemplars": "try `recipe=tuned` `scope=head`, which usually helps",
  "adjust": "try `recipe=tuned` `scope=head`, which usually helps",
}


@contextlib.contextmanager
def _naming_flags_to_try() -> Iterator[None]:
  """Adds to divergence which flags usually help."""
  from mnemonics_jax import runs

  try:
    yield
  except runs.Diverged as error:
    raise UserError(
      error.field, error.problem, _ADVICE.get(error.stage, error.fix)
    ) from error


@contextlib.contextmanager
def _offering_fresh() -> Iterator[None]:
  """Adds --fresh to errors of a work directory that cannot be continued."""
  from mnemonics_jax.runs import WorkdirError

  try:
    yield
  except WorkdirError as error:  # Its field is a file.
    raise UserError(
      "workdir", f"`workdir`: {error.problem}", f"{error.fix}, or add `fresh`"
    ) from error
  except UserError as error:
    # A full disk or another process is no reason to start over.
    if error.field != "workdir" or type(error) is not UserError:
      raise
    raise UserError(
      "workdir", error.problem, f"{error.fix}, or add `fresh`"
    ) from error


def saving_policy() -> "Policy":
  """When checkpoints are written and which are kept, by the flags."""
  from mnemonics_jax import runs

  return runs.Policy(FLAGS.checkpoint_every, FLAGS.keep, FLAGS.patience)


def optional_directory(flag: str) -> Path | None:
  """The directory that a flag names, if it was given."""
  given = FLAGS[flag].value
  return None if given is None else directory(flag, Path(given))


def directory(flag: str, default: Path) -> Path:
  """The directory that a flag names, if it is there or can be made."""
  path = Path(FLAGS[flag].value or default).expanduser()
  workdirs.check(flag, path)
  return path


def load_data(
  name: str, data_dir: str | None = None, **options: Any
) -> Dataset:
  """Loads a data set and shows how far decoding has come."""
  from rich import console, progress

  out = console.Console(stderr=True)
  with progress.Progress(
    console=out, transient=True, disable=not out.is_terminal
  ) as display:
    task = display.add_task(f"Reading {name}", total=None)

    def hear(event: Event) -> None:
      if isinstance(event, DataReport):
        display.update(task, completed=event.done, total=event.total)

    return data.load(name, data_dir, report=hear, share=_share(), **options)


def _share() -> data.Share:
  """What this process reads of a data set."""
  import jax

  from mnemonics_jax.parallel import processes

  return data.Share(
    jax.process_index(), jax.process_count(), processes.all_gather
  )
