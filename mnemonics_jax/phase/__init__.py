"""One phase of mnemonics training, as pure functions of a state.

A phase takes the state that the one before has left:

>>> from mnemonics_jax import PerClass, data, methods, networks, phase
>>> stream = data.stream(data.load("digits"), phases=1, images_per_class=4)
>>> network = networks.resnet8(width=4, image_shape=stream.image_shape)
>>> once = phase.Schedule(epochs=1, batch_size=20)
>>> config = phase.Config(
...   network, methods.LwF(), stream.shape, memory=PerClass(2), base=once,
...   train=once)
>>> state = phase.begin_run(0, config)
>>> for part in stream:
...   state, result = phase.run_phase(state, part, config)
>>> result.classes_seen, result.memory_images  # Two of each class.
(10, 20)
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
