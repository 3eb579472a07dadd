"""Θ_0, trained once for all runs that begin with the same base phase.

Runs that differ only in their exemplars, memory or later phases have the same
model after phase 0. It is kept under a name made of everything that decides it:
a run that finds its own takes it, and gets the numbers it would have had.
"""

import dataclasses
import hashlib
from pathlib import Path
import shutil

import jax
import numpy as np

from experiments.settings import DiskError, UserError
from mnemonics_jax import __version__, checkpoint, devices, phase
from mnemonics_jax.journal import Journal
from mnemonics_jax.phase import Config, PhaseData
from mnemonics_jax.types import PhaseState, Report, Variables


def train(
  directory: Path,
  state: PhaseState,
  data: PhaseData,
  config: Config,
  report: Report,
  journal: Journal,
) -> Variables:
  """`phase.train_model`, whose base model is read from `directory` or kept there."""
  if state.phase > 0:
    return phase.train_model(state, data, config, report, journal)
  path = directory / _name(state, data, config)
  there = path.exists()
  if not devices.same(there):
    raise UserError(
      f"--base_models={directory} must be on a disk that all machines see: some"
      f" of the processes find {path.name} there, and others do not."
    )
  # One that was begun here goes on, for its epochs are in the log.
  if not there or journal.started("train"):
    variables = phase.train_model(state, data, config, report, journal)
    try:
      if not there:
        checkpoint.save(path, variables)
    except OSError as error:
      if not path.exists():  # Another run may have been faster.
        raise DiskError(
          f"--base_models={directory} cannot be written ({error}); make room or"
          " choose another one."
        ) from error
  for draft in directory.glob(f"{path.name}.partial-*"):  # A kill left it.
    shutil.rmtree(draft, ignore_errors=True)
  try:
    return checkpoint.restore(path)[0]
  except checkpoint.Damaged as error:
    raise UserError(
      f"--base_models: {error}; remove it, and it is trained again."
    ) from error
  except OSError as error:
    raise DiskError(
      f"--base_models: {path} cannot be read now ({error}); if that lasts, remove"
      " it, and it is trained again."
    ) from error


def _name(state, data, config):
  """A digest of the data, the seed and the configuration of phase 0."""
  digest = hashlib.sha256()
  for array in (data.images, data.labels, jax.random.key_data(state.key)):
    digest.update(np.ascontiguousarray(array).data.cast("B"))
  parts = [
    __version__,
    config.model,
    dataclasses.replace(config.method, distill=True),  # Nothing is old yet.
    config.base,
    config.augment,
    config.capacity,
    data.new_classes,
  ]
  digest.update(repr(parts).encode())
  return digest.hexdigest()[:16]
