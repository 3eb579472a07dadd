"""A data set that is learned in seconds, and a configuration that learns it."""

from typing import Any

import numpy as np

from mnemonics_jax import augment, methods, networks, phase
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data import ClassStream, Dataset
from mnemonics_jax.memory import PerClass

SCHEDULE = phase.Schedule(
  epochs=8, learning_rate=0.05, milestones=(6,), batch_size=16
)
RECIPE = BilevelConfig(epochs=2, steps_per_epoch=2, inner_steps=2)


def dataset(
  classes: int = 6, train: int = 12, test: int = 6, seed: int = 0
) -> Dataset:
  """Noisy patterns, one per class."""
  rng = np.random.default_rng(seed)
  patterns = rng.integers(0, 256, (classes, 8, 8, 3))

  def draw(count):
    labels = np.repeat(np.arange(classes), count).astype(np.int32)
    noise = rng.normal(0, 40, (len(labels), 8, 8, 3))
    images = np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8)
    return images, labels

  return Dataset(
    "tiny",
    *draw(train),
    *draw(test),
    class_names=tuple(f"class {c}" for c in range(classes)),
    mean=(0.5,) * 3,
    std=(0.25,) * 3,
  )


def setup(
  method: methods.Method,
  *,
  split: tuple[int, ...] = (3, 1, 2),
  data: Dataset | None = None,
  width: int = 4,
  **options,
) -> tuple[phase.Config, ClassStream]:
  """A configuration for a stream of `dataset`, and the stream.

  Args:
    method: the base method.
    split: classes of each phase.
    data: instead of `dataset`.
    width: channels of the first stage.
    **options: fields of the configuration.
  """
  data = data or dataset(sum(split))
  stream = ClassStream(data, range(sum(split)), split, joint=method.joint)
  network = networks.resnet8(
    width=width, image_shape=data.image_shape, mean=data.mean, std=data.std
  )
  fields: dict[str, Any] = dict(
    memory=PerClass(3),
    bilevel=RECIPE,
    base=SCHEDULE,
    train=SCHEDULE,
    balance=phase.Schedule(1, 0.01, (), batch_size=16),
    augment=augment.CropFlip(1),
  )
  config = phase.Config(network, method, stream.shape, **(fields | options))
  return config, stream
