"""Θ_0, trained once for all runs that begin with the same base phase.

Runs that differ only in their exemplars, memory or later phases have the same
model after phase 0. It is kept under a name made of everything that decides it
(the data, the seed, what phase 0 does, and the version of the numerics):
a run that finds its own takes it, and gets the numbers it would have had.
"""

import dataclasses
import hashlib
import json
from pathlib import Path
import shutil

import jax
import numpy as np

from mnemonics_jax.data.images import checksum
from mnemonics_jax.errors import DiskError, UserError, remedy
from mnemonics_jax.identity import identity
from mnemonics_jax.package import NUMERICS
from mnemonics_jax.parallel import processes
from mnemonics_jax.phase.context import Phase, Stage
from mnemonics_jax.phase.train import train_model
from mnemonics_jax.progress import Note
from mnemonics_jax.runs import checkpoint, environment
from mnemonics_jax.types import Variables


def train(directory: Path, phase: Phase, stage: Stage) -> Variables:
  """`train_model`, whose base model is read from `directory` or kept there."""
  if phase.state.phase > 0:
    return train_model(phase, stage)
  path = directory / _name(phase)
  found = path.exists()
  if not processes.all_equal(found):
    raise UserError(
      "base_models",
      f"`base_models={directory}` is not the same for all processes: some find"
      f" {path.name} there, and others do not",
      "put it on a disk that all machines see",
    )
  # One that was begun here goes on, for its epochs are in the log.
  if not found or stage.journal.started(stage.entry):
    variables = train_model(phase, stage)
    try:
      if not found:
        info = {environment.KERNELS: environment.kernels()}
        checkpoint.save(path, variables, info, {"name": path.name})
    except OSError as error:
      if not path.exists():  # Another run may have been faster.
        raise DiskError(
          "base_models",
          f"`base_models={directory}` cannot be written ({error})",
          f"{remedy(error)}, or choose another one",
        ) from error
  for draft in directory.glob(f"{path.name}.partial-*"):  # A kill left it.
    shutil.rmtree(draft, ignore_errors=True)
  try:
    variables, info = checkpoint.restore(path, {"name": path.name})
  except checkpoint.Damaged as error:
    raise UserError(
      "base_models",
      f"`base_models`: {error}",
      "remove it, and it is trained again",
    ) from error
  except OSError as error:
    raise DiskError(
      "base_models",
      f"`base_models`: {path} cannot be read now ({error})",
      "if that lasts, remove it, and it is trained again",
    ) from error
  if change := environment.kernels_changed(info):
    stage.report(
      Note(
        f"Since the base model {path} was trained, {change}: bits differ, numbers"
        " agree to rounding."
      )
    )
  return variables


def _name(phase):
  """A digest of the data, the seed and the configuration of phase 0."""
  config, data = phase.config, phase.data
  digest = hashlib.sha256()
  key = jax.random.key_data(phase.state.key)
  images = data.images
  # To have the name of the same images in memory, all would have to be read.
  if not isinstance(images, np.ndarray):
    images = np.array(checksum(images))
  for array in (images, data.labels, key):
    digest.update(np.ascontiguousarray(array).data.cast("B"))
  # Nothing is old that could be distilled.
  method = dataclasses.replace(config.method, distill=True)
  parts = [
    NUMERICS,
    identity(config.model),
    identity(method),
    identity(config.base),
    identity(config.augment),
    len(data.labels),
    data.new_classes,
    int(phase.held_out.sum()),  # How many depends on the memory.
  ]
  digest.update(json.dumps(parts).encode())
  return digest.hexdigest()[:16]
