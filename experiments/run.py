"""Runs an experiment: every seed, every phase, and what is written of them."""

from pathlib import Path
import time
from typing import Any

import numpy as np

from experiments import plan
from experiments import workdir as workdir_lib
from experiments.settings import Settings, UserError, build, follows_paper
from mnemonics_jax import phase, report
from mnemonics_jax.data import Dataset
from mnemonics_jax.report import results as results_lib
from mnemonics_jax.types import PhaseResult, PhaseState


def run(
  settings: Settings, dataset: Dataset, workdir: Path, tensorboard: bool = True
) -> dict[str, Any]:
  """Trains once per seed and returns (and writes) the results.

  A seed that has finished in `workdir` before is not trained again.
  """
  config, stream = build(settings, dataset)
  workdir_lib.claim(workdir, settings)
  print(plan.describe(settings, config, stream, workdir), flush=True)
  for note in dataset.notes:
    print(f"Note: {note}", flush=True)
  pending = [s for s in settings.seeds if not _result(workdir, s).exists()]
  work = plan.phase_work(config, stream)
  with report.MetricsLog(workdir, tensorboard=tensorboard) as log:
    for seed in pending:
      with report.Progress(len(stream), f"seed {seed}", work=work) as progress:
        listeners = [progress, _epoch_writer(log, seed)]
        if seed == pending[0]:
          total = sum(work) * len(pending)
          listeners.append(plan.Estimate(total, progress.say))
        notify = lambda step, to=listeners: [tell(step) for tell in to]
        records = []
        state = phase.begin_run(seed, config)
        for data in stream:
          try:
            state, result = phase.run_phase(state, data, config, notify)
          except FloatingPointError as error:
            raise UserError(
              f"Seed {seed}, phase {state.phase}: {error}"
            ) from error
          record = results_lib.phase_record(result, stream.classes_per_phase)
          records.append(record)
          log.write({"kind": "phase", "seed": seed, **record})
          _save_arrays(_result(workdir, seed).parent, state, result)
      record = results_lib.run_record(seed, records)
      workdir_lib.write_json(_result(workdir, seed), record)
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


def _save_arrays(directory: Path, state: PhaseState, result: PhaseResult):
  directory.mkdir(parents=True, exist_ok=True)
  arrays = {
    f"confusion/{moment}/{name}": counts
    for moment, by_readout in result.confusion.items()
    for name, counts in by_readout.items()
  }
  seen = result.classes_seen
  np.savez_compressed(
    directory / f"phase_{result.phase:02d}.npz",
    **arrays,
    **{
      "memory/images": state.memory.images[:seen],
      "memory/counts": state.memory.counts[:seen],
    },
  )
