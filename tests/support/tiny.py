"""A data set that is learned in seconds, and outputs whose losses are known by hand."""

from typing import Any

import jax.numpy as jnp
import numpy as np

from mnemonics_jax import augment, methods, networks, phase
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data import ClassStream, Dataset
from mnemonics_jax.memory import PerClass
from mnemonics_jax.nn.model import Outputs

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


# One student and one teacher, and their losses.

C = 4
CLASSES = methods.Classes(
  old=jnp.array([True, True, False, False]),
  new=jnp.array([False, False, True, False]),
)


def masks(n_old: int, n_new: int, total: int) -> methods.Classes:
  """The first classes are old, the next ones new."""
  index = np.arange(total)
  old = index < n_old
  return methods.Classes(
    jnp.asarray(old), jnp.asarray((index < n_old + n_new) & ~old)
  )


def outputs(odds, features=((1.0, 0.0),)) -> Outputs:
  """Outputs whose softmax has these odds."""
  logits = jnp.log(jnp.asarray(odds))
  return Outputs(jnp.asarray(features), logits, logits / 10)


# Student 1:2:1, truth class 1; over the old classes at τ = 2 it says 1:√2.
STUDENT = outputs([[1.0, 2.0, 1.0, 50.0]])
# Teacher 4:1 over the old classes, 2:1 at τ = 2.
TEACHER = outputs([[4.0, 1.0, 1.0, 1.0]], [[0.6, 0.8]])
LABELS = jnp.array([1])
CE = np.log(2)
KD = -(2 / 3 * np.log(1 / (1 + 2**0.5)) + 1 / 3 * np.log(2**0.5 / (1 + 2**0.5)))
