"""One seed of a run: every phase, and what is written of it."""

from collections.abc import Callable, Sequence
from pathlib import Path
import time
from typing import Any

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import phase as phase_lib
from mnemonics_jax.data.stream import ClassStream
from mnemonics_jax.errors import UserError
from mnemonics_jax.phase import Config, Phase, Stage, train_model
from mnemonics_jax.progress import Event, Note, PhaseEnds, Report, StepReport
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.runs import (
  checkpoint,
  journal,
  layout,
  phase_arrays,
)
from mnemonics_jax.runs import results as results_lib
from mnemonics_jax.runs.journal import Saver
from mnemonics_jax.runs.metrics_log import MetricsLog
from mnemonics_jax.types import Variables

# The field of the configuration that says how a stage learns.
_FIELDS = {
  "train": "train",  # In phase 0, `base`.
  "finetune": "balance",
  "exemplars": "bilevel",
  "adjust": "bilevel",
}


class Diverged(UserError):
  """Numbers became infinite; what was saved before is good.

  >>> error = Diverged("train", "Training diverged in epoch 3", "use a lower rate")
  >>> error.stage, error.field, str(error)
  ('train', 'train', 'Training diverged in epoch 3; use a lower rate.')

  Attributes:
    stage: in which it happened.
  """

  def __init__(self, stage: str, problem: str, fix: str):
    super().__init__(_FIELDS.get(stage, stage), problem, fix)
    self.stage = stage


def run_seed(
  config: Config,
  stream: ClassStream,
  saver: Saver,
  report: Report,
  train: Callable[[Phase, Stage], Variables] = train_model,
) -> dict[str, Any]:
  """Trains what is left of a seed; returns its record in result.json.

  Args:
    config: what every phase does.
    stream: the data, phase by phase.
    saver: knows the seed, its directory and where it was.
    report: hears where it is.
    train: the model level instead of `train_model`.
  """
  seed, log = saver.seed, saver.log
  write_epoch = _EpochWriter(log, seed)

  def hear(event: Event) -> None:
    for listener in (saver.clock, report, write_epoch):
      listener(event)

  options: dict[str, Any] = dict(report=hear, journal=saver, train=train)
  state, phases = saver.restore(phase_lib.begin_run(seed, config))
  for number in range(state.phase, len(stream)):
    try:
      state, result = phase_lib.run_phase(
        state, stream[number], config, **options
      )
    except FloatingPointError as error:
      stage = str(saver.clock.stage)
      raise Diverged(
        stage,
        f"seed {seed}, phase {number}, stage {stage}: {error} The last good"
        f" checkpoint is {saver.newest}",
        "lower the learning rate of that stage",
      ) from error
    record = results_lib.phase_record(result, stream.classes_per_phase)
    phases.append(record)
    log.write(
      {"kind": "phase", "seed": seed, **record, "seconds": saver.clock.read()}
    )
    phase_arrays.write_phase_arrays(
      saver.workdir,
      seed,
      number,
      seen=result.classes_seen,
      memory=memory_lib.flat(state.memory),
      confusion=result.confusion,
      changed=result.changed,
      test_features=result.test_features,
      exemplar_features=result.exemplar_features,
    )
    state = saver.end_phase(state, phases)
    report(PhaseEnds(number, result.classes_seen, record["accuracy"]))
  return results_lib.run_record(seed, phases)


def finished_records(
  workdir: Path, seeds: Sequence[int], phases: int, run: str, report: Report
) -> dict[int, dict[str, Any]]:
  """What those seeds have measured that have ended.

  A damaged result.json is made again from the last checkpoint.

  Args:
    workdir: of the run.
    seeds: of the run.
    phases: how many it has.
    run: its name; see `claim.run_name`.
    report: hears what a person should know.
  """
  found = {
    seed: _finished(workdir, seed, phases, run, report) for seed in seeds
  }
  return {seed: record for seed, record in found.items() if record is not None}


def _finished(workdir, seed, phases, run, report):
  directory = layout.checkpoint_dir(workdir, seed)
  name = journal.checkpoint_name(phases - 1)
  try:
    place = journal.place_of(run, seed, name)
    info = checkpoint.restore_info(directory / name, place)
    saved = results_lib.run_record(seed, info["records"])
  except (checkpoint.Damaged, OSError):
    saved = None
  path, problem = layout.seed_result_path(workdir, seed), None
  if path.exists():
    try:
      record = layout.read_seed_result(workdir, seed)
      if saved is None and not _fits(record, seed, phases):
        raise layout.damaged(path, "it is not of this seed and its phases")
      if saved in (None, record):
        return record
      problem = layout.damaged(path, f"it differs from {name}")
    except layout.DamagedFile as error:
      problem = error
  if saved is None:
    if problem is not None and not journal.phase_names(directory):
      raise problem  # Nothing is left that it could be made of.
    return None
  layout.write_seed_result(workdir, seed, saved)
  if problem is not None:
    text = f"{problem.problem}; it was written again from {name}."
    report(Note(f"Note: {text}"))
  return saved


def _fits(record, seed, phases):
  """Whether a record is one of this seed, with all that results are made of."""
  measured = [record["average"], record["forgetting"]]
  for phase in record["phases"]:
    measured += [phase["accuracy"], phase["by_group"]]
  return (
    (record["seed"], len(record["phases"])) == (seed, phases)
    and all(part.keys() >= READOUTS.keys() for part in measured)
  )  # fmt: skip


class _EpochWriter:
  """A `Report` that writes completed epochs to the log."""

  def __init__(self, log: MetricsLog, seed: int):
    self._log, self._seed = log, seed
    self._began = time.monotonic()

  def __call__(self, event: Event) -> None:
    if not isinstance(event, StepReport) or event.metrics is None:
      return
    now = time.monotonic()
    self._log.write(
      {
        "kind": "epoch",
        "seed": self._seed,
        "phase": event.phase,
        "stage": event.stage,
        "epoch": event.epoch,
        **event.metrics,
        "seconds": now - self._began,
      }
    )
    self._began = now
