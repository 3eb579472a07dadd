"""One phase of mnemonics training, as pure functions of a state.

A phase takes the state that the one before has left:

    state = phase.begin_run(seed, config)
    for data in stream:
      state, result = phase.run_phase(state, data, config)
"""

from mnemonics_jax.data.stream import PhaseData
from mnemonics_jax.phase.config import Config, OpenShape, Schedule, Sizes
from mnemonics_jax.phase.context import Journal, Phase, Stage
from mnemonics_jax.phase.draws import epoch_order
from mnemonics_jax.phase.feed import (
  Block,
  Feed,
  Pool,
  Streamed,
  make_feed,
  make_pool,
)
from mnemonics_jax.phase.run import begin_run, run_phase
from mnemonics_jax.phase.sgd import (
  Task,
  TrainState,
  epoch_steps,
  fit,
  init_training,
  train_step,
  zero_metrics,
)
from mnemonics_jax.phase.train import train_model

__all__ = [
  "Block",
  "Config",
  "Feed",
  "Journal",
  "OpenShape",
  "Phase",
  "PhaseData",
  "Pool",
  "Schedule",
  "Sizes",
  "Stage",
  "Streamed",
  "Task",
  "TrainState",
  "begin_run",
  "epoch_order",
  "epoch_steps",
  "fit",
  "init_training",
  "make_feed",
  "make_pool",
  "run_phase",
  "train_model",
  "train_step",
  "zero_metrics",
]
