"""Θ_0, trained once for all runs that begin with the same base phase.

Runs that differ only in their exemplars, memory or later phases have the same
model after phase 0. It is kept under a name made of everything that decides it:
a run that finds its own takes it, and gets the numbers it would have had.
"""

import hashlib
from pathlib import Path

import jax
import jax.numpy as jnp

from mnemonics_jax import __version__, checkpoint, phase
from mnemonics_jax.phase import Config, PhaseData
from mnemonics_jax.types import PhaseState, Report, Variables


def get(
  directory: Path,
  state: PhaseState,
  data: PhaseData,
  config: Config,
  report: Report,
) -> Variables:
  """The model after the base phase: read from `directory`, or trained and kept."""
  path = directory / _name(state, data, config)
  if not path.exists():
    variables = phase.train_model(state, data, config, report)
    try:
      checkpoint.save(path, variables)
    except OSError:
      if not path.exists():  # Another run may have been faster.
        raise
  variables, _ = checkpoint.restore(path)
  return jax.tree.map(jnp.asarray, variables)


def _name(state, data, config):
  """A digest of the data, the seed and the configuration of phase 0."""
  digest = hashlib.sha256()
  for array in (data.images, data.labels, jax.random.key_data(state.key)):
    digest.update(memoryview(jnp.asarray(array)).cast("B"))
  parts = [
    __version__,
    config.model,
    config.method,
    config.base,
    config.augment,
    config.capacity,
    data.new_classes,
  ]
  if dtype := config.model.network.module.dtype:
    parts.append(dtype)
  digest.update(repr(parts).encode())
  return digest.hexdigest()[:16]
