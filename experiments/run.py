"""Runs an experiment: every seed, every phase, and what is written of them."""

import functools
from pathlib import Path
import time
from typing import Any
import zlib

import numpy as np

from experiments import base_models as base_models_lib
from experiments import plan
from experiments import workdir as workdir_lib
from experiments.paper import follows_paper
from experiments.saving import Policy, Saver
from experiments.settings import Settings, UserError, build
from experiments.stopping import CONTINUE, Stop
from mnemonics_jax import devices, files, phase, report
from mnemonics_jax.data import Dataset
from mnemonics_jax.report import results as results_lib
from mnemonics_jax.types import PhaseResult, PhaseState


def run(
  settings: Settings,
  dataset: Dataset,
  workdir: Path,
  *,
  tensorboard: bool = True,
  base_models: Path | None = None,
  saving: Policy = Policy(),
  how: str = CONTINUE,
) -> dict[str, Any]:
  """Trains once per seed and returns (and writes) the results.

  What has been done in `workdir` before is not done again.

  Args:
    settings: what is run.
    dataset: on which data.
    workdir: where results go.
    tensorboard: whether TensorBoard events are written, too.
    base_models: where models of phase 0 are kept, None to train each anew.
    saving: when checkpoints are written, and which are kept.
    how: a sentence on how to continue, if somebody stops it.

  Raises:
    Stopped: a signal has asked for it; the next call continues.
    UserError: what is asked for cannot be done, or training diverged.
  """
  config, stream = build(settings, dataset)
  checksum = _checksum(dataset)
  if not devices.same(checksum >> 1):
    raise UserError(
      "The processes have read different data; give all machines the same."
    )
  moved = workdir_lib.claim(workdir, settings, checksum)
  print(plan.describe(settings, config, stream, workdir), flush=True)
  memory = plan.memory_note(config, stream)
  for note in filter(None, [*dataset.notes, moved, memory]):
    print(f"Note: {note}", flush=True)
  train = None
  if base_models is not None:
    train = functools.partial(base_models_lib.train, base_models)
  stop = Stop(how)
  with (
    workdir_lib.locked(workdir),
    stop.listening(f"What is saved in {workdir} is safe."),
    report.MetricsLog(workdir, tensorboard=tensorboard) as log,
  ):
    pending = [s for s in settings.seeds if not _result(workdir, s).exists()]
    work = plan.phase_work(config, stream)
    for seed in pending:
      with report.Progress(len(stream), f"seed {seed}", work=work) as progress:
        directory = _result(workdir, seed).parent
        saver = Saver(
          seed, directory / "checkpoints", saving, log, stop, progress.say
        )
        listeners = [saver.clock, progress, _epoch_writer(log, seed)]
        if seed == pending[0]:
          total = sum(work) * len(pending)
          listeners.append(plan.Estimate(total, progress.say))
        notify = lambda step, to=listeners: [tell(step) for tell in to]
        records = _run_seed(seed, config, stream, log, saver, notify, train)
        record = results_lib.run_record(seed, records)
        workdir_lib.write_json(_result(workdir, seed), record)
    results = _write_results(workdir, settings, config, stream)
    stop.obey()
    return results


# What to try when a stage diverges.
_ADVICE = {
  "train": "A lower --learning_rate",
  "finetune": "A lower --finetune_learning_rate",
  "exemplars": "--recipe=tuned --scope=head",
  "adjust": "--recipe=tuned --scope=head",
}


def _run_seed(seed, config, stream, log, saver, notify, train):
  """The records of all phases."""
  mapped = _mapped_classes(stream.classes_per_phase)
  state, records = saver.restore(phase.begin_run(seed, config))
  for number in range(state.phase, len(stream)):
    try:
      state, result = phase.run_phase(
        state, stream[number], config, notify, saver, train
      )
    except FloatingPointError as error:
      stage = str(saver.clock.stage)
      raise UserError(
        f"Seed {seed}, phase {state.phase}, stage {stage}: {error}"
        f" {_ADVICE[stage]} usually helps. The last good checkpoint is"
        f" {saver.newest}."
      ) from error
    record = results_lib.phase_record(result, stream.classes_per_phase)
    records.append(record)
    log.write(
      {"kind": "phase", "seed": seed, **record, "seconds": saver.clock.read()}
    )
    _save_arrays(saver.directory.parent, state, result, mapped)
    saver.end_phase(state, records)
  return records


def _checksum(dataset):
  """A number that changes with the data."""
  arrays = (
    dataset.train_images, dataset.train_labels,
    dataset.test_images, dataset.test_labels,
  )  # fmt: skip
  return functools.reduce(
    lambda crc, array: zlib.crc32(np.ascontiguousarray(array).data, crc),
    arrays,
    0,
  )


def _write_results(workdir, settings, config, stream):
  """results.json from what the seeds have written."""
  runs = [workdir_lib.read_json(_result(workdir, s)) for s in settings.seeds]
  results = {
    "title": settings.title,
    "dataset": settings.dataset,
    "method": settings.method,
    "exemplars": settings.exemplars,
    "memory": settings.memory,
    "readout": config.method.readout,
    "preset": settings.preset,
    "schedule": "paper" if follows_paper(settings) else "reduced",
    "classes_per_phase": list(stream.classes_per_phase),
    "class_names": list(stream.class_names),
    "seeds": list(settings.seeds),
    "runs": runs,
    "summary": results_lib.summary(runs),
  }
  workdir_lib.write_json(workdir / "results.json", results)
  return results


def _result(workdir: Path, seed: int) -> Path:
  """Where a seed's results are written when it has finished."""
  return workdir / f"seed_{seed}" / "result.json"


def _epoch_writer(log, seed):
  """A `Report` that writes completed epochs to the log."""
  began = time.monotonic()

  def write(step):
    nonlocal began
    if step.metrics is None:
      return
    now = time.monotonic()
    log.write(
      {
        "kind": "epoch",
        "seed": seed,
        "phase": step.phase,
        "stage": step.stage,
        "epoch": step.epoch,
        **step.metrics,
        "seconds": now - began,
      }
    )
    began = now

  return write


# How much of a phase is kept for pictures.
_SHOWN_CLASSES, _SHOWN_PER_CLASS = 10, 2
_MAPPED = 7


def _save_arrays(
  directory: Path, state: PhaseState, result: PhaseResult, mapped: list[int]
):
  """What a report draws of a phase: counts, memory, images, features."""
  seen = result.classes_seen
  arrays = {
    "memory/images": state.memory.images[:seen],
    "memory/counts": state.memory.counts[:seen],
  }
  for moment, by_readout in result.confusion.items():
    for name, counts in by_readout.items():
      arrays[f"confusion/{moment}/{name}"] = counts
  for stage, (before, after, labels) in result.changed.items():
    rows = [
      row
      for label in np.unique(labels)[:_SHOWN_CLASSES]
      for row in np.flatnonzero(labels == label)[:_SHOWN_PER_CLASS]
    ]
    for name, values in [
      ("before", before), ("after", after), ("labels", labels)
    ]:  # fmt: skip
      arrays[f"changed/{stage}/{name}"] = values[rows]
  for name, (features, labels) in [
    ("test", result.test_features),
    ("exemplars", result.exemplar_features),
  ]:
    rows = np.isin(labels, mapped)
    arrays[f"features/{name}"] = features[rows].astype(np.float16)
    arrays[f"features/{name}_labels"] = labels[rows]
  path = directory / f"phase_{result.phase:02d}.npz"
  with files.replacing(path) as file:
    np.savez_compressed(file, **arrays)


def _mapped_classes(split):
  """Classes whose features are kept: three of phase 0, then four newcomers."""
  start, mapped = split[0], list(range(min(split[0], 3)))
  for size in split[1:]:
    missing = _MAPPED - len(mapped)
    mapped += range(start, start + min(size, 2, missing))
    start += size
  return mapped
