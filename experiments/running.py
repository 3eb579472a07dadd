"""A command's run: from flags and data to the report page."""

from collections.abc import Iterator
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from absl.flags import FlagValues

from experiments import flags as flags_lib
from experiments import launch, names, paper
from experiments.flags import value_of
from mnemonics_jax import data
from mnemonics_jax.data import Dataset
from mnemonics_jax.errors import UserError
from mnemonics_jax.progress import DataReport, Event, Note, PhaseEnds, Report
from mnemonics_jax.settings import Settings
from mnemonics_jax.settings.build import build

if TYPE_CHECKING:
  from mnemonics_jax.runs import Policy

CONTINUE = "The same command continues from there."


def learn(dataset: str, flags: FlagValues) -> None:
  """Learns a data set as the flags say; prints the table and writes the report."""
  settings = flags_lib.settings(flags, dataset)
  with launch.computing(flags):
    # Imported here so that a mistake in the flags is answered at once.
    from mnemonics_jax import runs

    saving = saving_policy(flags)
    # A bad directory is refused before data are read.
    flags_lib.check_directory(
      "workdir", flags_lib.path(flags.workdir or "runs")
    )
    base_models = directory(flags, "base_models")
    loaded = load(settings, flags)
    workdir = directory(flags, "workdir") or usual_workdir(
      settings, loaded.checksum
    )
    advice = CONTINUE
    if flags.fresh:
      workdir = fresh(workdir)
      advice = f"To continue, give --workdir={workdir} instead of --fresh."
    with offering_fresh(), prepared(settings, loaded, workdir, flags) as call:
      results = runs.run(
        **call, base_models=base_models, saving=saving, advice=advice
      )
    show(results, workdir, flags)


def run(
  settings: Settings,
  dataset: Dataset,
  workdir: Path,
  *,
  flags: FlagValues,
  **options: Any,
) -> dict[str, Any]:
  """`runs.run` for these settings, shown on the console."""
  from mnemonics_jax import runs

  with prepared(settings, dataset, workdir, flags) as call:
    return runs.run(**call, **options)


@contextlib.contextmanager
def prepared(
  settings: Settings, dataset: Dataset, workdir: Path, flags: FlagValues
) -> Iterator[dict[str, Any]]:
  """The arguments of `runs.run` for these settings; the console shows the run.

  Args:
    settings: of the run.
    dataset: what it learns.
    workdir: where everything is written.
    flags: of the command.
  """
  from experiments import opening
  from mnemonics_jax import runs

  config, stream = build(settings, dataset)
  title = f"{stream.name} · {settings.title}"
  departures = (*paper.departures(settings), *stream.departures)
  schedule = "reduced" if departures else "paper"
  words = opening.describe(settings, config, stream, workdir)
  with followed(words, flags, workdir) as report:
    yield dict(
      config=config,
      stream=stream,
      workdir=workdir,
      seeds=settings.seeds,
      settings=settings.identity(),
      base_model=settings.base_model,
      labels=runs.Labels(title, settings.preset, schedule, departures),
      tensorboard=flags.tensorboard,
      report=report,
    )


@contextlib.contextmanager
def followed(
  opening: str, flags: FlagValues, workdir: Path
) -> Iterator[Report]:
  """Shows the events of a run on the console, with settings as flags.

  Args:
    opening: printed when the run begins.
    flags: of the command; --report_every_phase asks for a page after every phase.
    workdir: of the run.
  """
  from mnemonics_jax import report, runs
  from mnemonics_jax.parallel import processes
  from mnemonics_jax.report.console import Console

  def hear(event: Event) -> None:
    if isinstance(event, Note):
      event = Note(flags_lib.in_flags(event.text, flags))
    console(event)
    wanted = value_of(flags, "report_every_phase")
    if wanted and isinstance(event, PhaseEnds) and processes.is_first():
      report.build([workdir])

  with Console(opening) as console:
    try:
      yield hear
    except runs.Diverged as error:
      fix = _ADVICE.get(error.stage, error.fix)
      raise UserError(error.field, error.problem, fix) from error


# What to try when a stage diverges.
_ADVICE = {
  "train": "try a lower `learning_rate`, which usually helps",
  "finetune": "try a lower `finetune_learning_rate`, which usually helps",
  "exemplars": "try `recipe=tuned` `scope=head`, which usually helps",
  "adjust": "try `recipe=tuned` `scope=head`, which usually helps",
}


@contextlib.contextmanager
def offering_fresh() -> Iterator[None]:
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


def show(results: dict[str, Any], workdir: Path, flags: FlagValues) -> None:
  """Prints the table and perhaps a warning, and writes the page."""
  from mnemonics_jax import report
  from mnemonics_jax.parallel import processes

  if not processes.is_first():
    return
  print(f"\n{report.console_table(results)}\n")
  if warning := report.warning(report.load_run(workdir)):
    print(f"{flags_lib.in_flags(warning, flags)}\n")
  print(f"Report: {report.build([workdir])}")


# Places.


def usual_workdir(settings: Settings, data: int, root: str = "runs") -> Path:
  """A directory of its own for all settings that give the same numbers.

  Args:
    settings: of a run.
    data: the checksum of what it learns.
    root: where directories of runs are.
  """
  # Names once depended on the spelling of --data: continue such a run.
  former = Path(root) / settings.name(data, with_place=True)
  return former if former.exists() else Path(root) / settings.name(data)


def fresh(workdir: Path) -> Path:
  """`workdir`, or the first of `workdir-2`, `workdir-3`... that is not there."""
  candidate, number = workdir, 2
  while candidate.exists():
    candidate, number = Path(f"{workdir}-{number}"), number + 1
  return candidate


def directory(flags: FlagValues, name: str) -> Path | None:
  """The directory that a flag names, if it is there or can be made."""
  given = flags[name].value
  if given is None:
    return None
  path = flags_lib.path(given)
  flags_lib.check_directory(name, path)
  return path


def saving_policy(flags: FlagValues) -> "Policy":
  """When the flags want checkpoints written, and which to keep."""
  from mnemonics_jax import runs

  return runs.Policy(flags.checkpoint_every, flags.keep, flags.patience)


# Data.


def load(settings: Settings, flags: FlagValues) -> Dataset:
  """The data set of a run, with the options that flags or presets give it."""
  source = data.SOURCES[settings.dataset]
  given = {
    name: getattr(settings, name, value_of(flags, name))
    for name in source.options
  }
  data_dir = given.pop("data_dir", settings.data)
  given = {name: value for name, value in given.items() if value is not None}
  if source.streams:
    given["stream"] = settings.stream
  called = names.class_names(flags) if "class_names" in flags else {}
  dataset = load_data(settings.dataset, data_dir, **given)
  title = value_of(flags, "name") or dataset.name
  return names.rename_classes(dataset, called, title)


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
  """The share of a data set that this process reads."""
  import jax

  from mnemonics_jax.parallel import processes

  return data.Share(
    jax.process_index(), jax.process_count(), processes.all_gather
  )
