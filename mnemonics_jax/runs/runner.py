"""A run: every seed, every phase, and what is written of them."""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import functools
from pathlib import Path
import time
from typing import Any, NamedTuple

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import phase as phase_lib
from mnemonics_jax.data.stream import ClassStream
from mnemonics_jax.errors import UserError, check_count
from mnemonics_jax.identity import identity
from mnemonics_jax.parallel import mesh, processes
from mnemonics_jax.phase import Config, cost, feed, train_model
from mnemonics_jax.progress import (
  Event,
  Note,
  PhaseEnds,
  Report,
  RunBegins,
  SeedBegins,
  StepReport,
  ignore,
)
from mnemonics_jax.runs import (
  artifact,
  environment,
  journal,
  layout,
  phase_arrays,
)
from mnemonics_jax.runs import base_models as base_models_lib
from mnemonics_jax.runs import results as results_lib
from mnemonics_jax.runs.claim import claimed, flat, run_name
from mnemonics_jax.runs.journal import Policy, Saver
from mnemonics_jax.runs.metrics_log import MetricsLog
from mnemonics_jax.runs.signals import CONTINUE, Stop
from mnemonics_jax.types import PhaseResult, PhaseState


class Labels(NamedTuple):
  """What people call a run; nothing here changes a number.

  Attributes:
    title: parts separated by " · ".
    preset: name of the settings it started from.
    schedule: `paper` if it may stand beside published numbers.
    departures: in what it differs from the paper, in words.
  """

  title: str
  preset: str = "custom"
  schedule: str = "reduced"
  departures: tuple[str, ...] = ()


# The field of the configuration that says how a stage learns.
_FIELDS = {
  "train": "train",  # In phase 0, `base`.
  "finetune": "balance",
  "exemplars": "bilevel",
  "adjust": "bilevel",
}


class Diverged(UserError):
  """Numbers became infinite; what was saved before is good.

  Attributes:
    stage: in which it happened.
  """

  def __init__(self, stage: str, problem: str, fix: str):
    super().__init__(_FIELDS.get(stage, stage), problem, fix)
    self.stage = stage


def run(
  config: Config,
  stream: ClassStream,
  workdir: str | Path,
  *,
  seeds: Sequence[int] = (0,),
  settings: Mapping[str, Any] | None = None,
  labels: Labels | None = None,
  report: Report = ignore,
  tensorboard: bool = False,
  base_models: str | Path | None = None,
  base_model: str | Path | None = None,
  saving: Policy = Policy(),
  advice: str = CONTINUE,
) -> dict[str, Any]:
  """Trains once per seed and returns (and writes) the results.

  What was done in `workdir` before is not done again: the same call continues.

  >>> from mnemonics_jax import PerClass, data, methods, networks
  >>> from mnemonics_jax.phase import Schedule
  >>> stream = data.stream(data.load("digits"), phases=1, images_per_class=4)
  >>> network = networks.resnet8(width=4, image_shape=stream.image_shape)
  >>> once = Schedule(epochs=1, batch_size=20)
  >>> config = Config(
  ...   network, methods.LwF(), stream.shape,
  ...   memory=PerClass(2), base=once, train=once)
  >>> results = run(config, stream, "my_run")
  >>> results["title"], len(results["summary"]["head"]["per_phase"])
  ('digits · lwf · herding · per_class:2', 2)
  >>> run(config, stream, "my_run") == results  # Nothing is left to do.
  True

  Args:
    config: what every phase does.
    stream: the data, phase by phase.
    workdir: where everything is written; docs/formats.md describes it.
    seeds: of initialisation, sampling and augmentation.
    settings: what decides the numbers, in names that people know. A directory of
      other settings is refused. By default all of `config`, and the seeds.
    labels: what people call the run.
    report: hears where it is.
    tensorboard: whether TensorBoard events are written, too.
    base_models: where models of phase 0 are kept, None to train each anew.
    base_model: a published one to begin with, whatever decides it.
    saving: when checkpoints are written, which are kept, and how long a signal
      waits for one.
    advice: a sentence on how to continue, if somebody stops it.

  Returns:
    The object in results.json.

  Raises:
    Stopped: a signal has asked for it; the next call continues.
    Diverged: numbers became infinite.
    UserError: what is asked for cannot be done.
  """
  workdir = processes.private_directory(Path(workdir))
  if settings is None:
    settings = _settings(config, stream, seeds, base_model)
  _check(config, stream, seeds)
  training = functools.partial(
    _training, config, stream, base_models, base_model
  )
  training(seeds[0])  # What does not fit is told before anything is written.
  stop, described = Stop(advice), description(config, stream, labels)
  with (
    claimed(workdir, settings, stream.checksum, **described) as moved,
    stop.listening(f"What is saved in {workdir} is safe.", saving.patience),
    MetricsLog(workdir, tensorboard=tensorboard) as log,
  ):
    name = run_name(layout.read_config(workdir))
    done = _finished_records(workdir, seeds, len(stream), name, report)
    pending = [seed for seed in seeds if seed not in done]
    _announce(report, config, stream, pending, moved)
    for seed in pending:
      report(SeedBegins(seed))
      saver = Saver(seed, workdir, saving, log, stop, report, name)
      hear, train = _listener(saver, report), training(seed)
      state, phases = saver.restore(phase_lib.begin_run(seed, config))
      for number in range(state.phase, len(stream)):
        with _explaining_divergence(saver, number):
          state, result = phase_lib.run_phase(
            state,
            stream[number],
            config,
            report=hear,
            journal=saver,
            train=train,
          )
        phases.append(_write_phase(saver, stream, state, result))
        state = saver.end_phase(state, phases)
        accuracy = phases[-1]["accuracy"]
        report(PhaseEnds(number, result.classes_seen, accuracy))
      done[seed] = results_lib.run_record(seed, phases)
      layout.write_seed_result(workdir, seed, done[seed])
    measured = [done[seed] for seed in seeds]
    results = results_lib.results(header(config, stream, labels), measured)
    layout.write_results(workdir, results)
    return results


def _listener(saver: Saver, report: Report) -> Report:
  """Tells the saver's clock, `report` and the log of what a seed does."""
  began = time.monotonic()

  def hear(event: Event) -> None:
    nonlocal began
    saver.clock(event)
    report(event)
    if not isinstance(event, StepReport) or event.metrics is None:
      return
    now = time.monotonic()
    saver.log.write(
      {
        "kind": "epoch",
        "seed": saver.seed,
        "phase": event.phase,
        "stage": event.stage,
        "epoch": event.epoch,
        **event.metrics,
        "seconds": now - began,
      }
    )
    began = now

  return hear


@contextlib.contextmanager
def _explaining_divergence(saver: Saver, number: int) -> Iterator[None]:
  """Says where numbers became infinite, and what is safe."""
  try:
    yield
  except FloatingPointError as error:
    stage = str(saver.clock.stage)
    raise Diverged(
      stage,
      f"seed {saver.seed}, phase {number}, stage {stage}: {error} The last good"
      f" checkpoint is {saver.newest}",
      "lower the learning rate of that stage",
    ) from error


def _write_phase(
  saver: Saver, stream: ClassStream, state: PhaseState, result: PhaseResult
) -> dict[str, Any]:
  """Writes what a phase has measured to the log and arrays; returns its record."""
  record = results_lib.phase_record(result, stream.classes_per_phase)
  seconds = saver.clock.read()
  saver.log.write(
    {"kind": "phase", "seed": saver.seed, **record, "seconds": seconds}
  )
  phase_arrays.write_phase_arrays(
    saver.workdir,
    saver.seed,
    result.phase,
    seen=result.classes_seen,
    memory=memory_lib.flat(state.memory),
    confusion=result.confusion,
    changed=result.changed,
    test_features=result.test_features,
    exemplar_features=result.exemplar_features,
  )
  return record


def _training(config, stream, base_models, base_model, seed):
  """How models are trained: that of phase 0 may be there already."""
  found = None
  if base_model is not None:
    found = base_models_lib.load(base_model)
  elif base_models is not None:
    found = base_models_lib.find(Path(base_models), config, stream, seed)
  if found is not None:
    return base_models_lib.begin_with(
      found, base_models_lib.first_names(stream)
    )
  if base_models is None:
    return train_model
  own = processes.private_directory(Path(base_models))
  return functools.partial(base_models_lib.train, own)


def _announce(report, config, stream, pending, moved):
  """What a person should know before the first step."""
  work = cost.phase_work(config)
  report(RunBegins(len(stream), tuple(pending), tuple(work)))
  told = [
    *stream.notes,
    environment.kernel_news(),
    moved,
    cost.memory_note(config),
  ]
  for note in filter(None, told):
    report(Note(f"Note: {note}"))


def _settings(config, stream, seeds, base_model):
  """All that decides the numbers: the order of classes is not in the config."""
  try:
    fields = flat(identity(config))
  except TypeError as error:
    raise UserError(
      "settings",
      f"the configuration cannot be written down ({error})",
      "pass settings=, a dict of what makes this run itself",
    ) from error
  names = list(stream.class_names)
  if base_model is not None:
    fields["base_model"] = base_models_lib.about(base_model)["weights_sha256"]
  return {**fields, "class_names": names, "seeds": list(seeds)}


def description(
  config: Config, stream: ClassStream, labels: Labels | None = None
) -> dict[str, Any]:
  """What `config.json` says of a run beside its settings.

  It is what `Learner.load` needs to know, and reports of unfinished runs.
  """
  try:
    described = identity(config)
  except TypeError:
    described = None
  return {
    "config": described,
    "class_names": list(stream.class_names),
    "results": header(config, stream, labels),
  }


def _check(config, stream, seeds):
  """Refuses what could not be computed, before anything is written."""
  for seed in seeds:
    check_count("seeds", seed, most=2**32 - 1)
  if not seeds or len(set(seeds)) < len(seeds):
    raise UserError(
      "seeds", f"`seeds={list(seeds)}` must name each once", "write `seeds=0,1`"
    )
  if config.shape != stream.shape:
    raise UserError(
      "shape",
      "the configuration was made for a stream of another shape",
      "make it with this stream's shape",
    )
  feed.check_stream(config.stream, stream.varies)
  devices = mesh.device_count()
  sizes = {s.batch_size for s in (config.base, config.train, config.balance)}
  for size in sizes:
    if size % devices:
      raise UserError(
        "batch_size",
        f"`batch_size={size}` cannot be shared equally by {devices} devices",
        f"choose a multiple of {devices}",
      )
  environment.check_processes()
  if not processes.all_equal(stream.checksum >> 1):
    raise UserError(
      "data_dir",
      "the processes have read different data",
      "give all machines the same",
    )


def header(
  config: Config, stream: ClassStream, labels: Labels | None = None
) -> dict[str, Any]:
  """The part of results.json that is known before anything was measured."""
  kept = str(config.memory)
  if not config.codec.exact:
    kept += f" {config.codec}"
  title = stream.name, config.method.name, config.exemplars, kept
  labels = labels or Labels(" · ".join(title))
  return {
    "title": labels.title,
    "dataset": stream.name,
    "method": config.method.name,
    "exemplars": config.exemplars,
    "memory": str(config.memory),
    "codec": str(config.codec),
    "readout": config.method.readout,
    "preset": labels.preset,
    "schedule": labels.schedule,
    "departures": list(labels.departures),
    "classes_per_phase": list(stream.classes_per_phase),
    "class_names": list(stream.class_names),
  }


def _finished_records(
  workdir: Path, seeds: Sequence[int], phases: int, run: str, report: Report
) -> dict[int, dict[str, Any]]:
  """The records of seeds that have finished.

  A damaged result.json is written again from the last checkpoint.

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
    info = artifact.restore_info(directory / name, place)
    saved = results_lib.run_record(seed, info["records"])
  except (artifact.Damaged, OSError):
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
  if (record["seed"], len(record["phases"])) != (seed, phases):
    return False
  names = record["average"].keys()
  measured = [phase["accuracy"] for phase in record["phases"]]
  return (
    bool(names)
    and names == {*results_lib.shared_readouts(measured)}
    and names == record["forgetting"].keys()
    and all(phase["by_group"].keys() >= names for phase in record["phases"])
  )
