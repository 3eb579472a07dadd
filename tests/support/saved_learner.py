"""A small learner that has learned two classes, then one more, on disk."""

import functools
from pathlib import Path
import shutil
import tempfile
from typing import Any

import numpy as np

from mnemonics_jax import Learner, bilevel, networks, phase
from mnemonics_jax.progress import ignore

ONCE = phase.Schedule(1, 0.05, (), batch_size=8)
QUICK: dict[str, Any] = dict(
  base=ONCE,
  train=ONCE,
  balance=ONCE,
  bilevel=bilevel.BilevelConfig(epochs=1, steps_per_epoch=1, inner_steps=2),
  augment="crop",
)
"""Fields of a learner that takes a second for a phase."""


def network(**options):
  """The smallest one of this package."""
  shape: dict[str, Any] = {
    "image_shape": (8, 8, 3),
    "mean": (0.5,) * 3,
    "std": (0.25,) * 3,
  }
  return networks.resnet8(width=4, **(shape | options))


def images(count: int, seed: int, shape=(8, 8, 3)) -> np.ndarray:
  """A pattern of their own for each seed, and noise."""
  rng = np.random.default_rng(seed)
  noise = rng.normal(0, 30, (count, *shape))
  pixels = rng.integers(0, 256, shape) + noise
  return pixels.clip(0, 255).astype(np.uint8)


def pictures(**counts: int) -> tuple[np.ndarray, list[str]]:
  """Images of classes by name, the same for the same names."""
  names = [name for name, count in counts.items() for _ in range(count)]
  parts = [images(n, sum(map(ord, name))) for name, n in counts.items()]
  return np.concatenate(parts), names


@functools.cache
def _saved() -> Path:
  path = Path(tempfile.mkdtemp(prefix="saved_learner_")) / "learner"
  learner = Learner(network(), memory="per_class:2", **QUICK)
  known = learner.learn(None, *pictures(cat=4, dog=4), report=ignore)
  known = learner.learn(known, *pictures(fox=4), report=ignore)
  learner.save(known, path)
  return path


def write(path: Path) -> Path:
  """A copy of it at `path`."""
  return Path(shutil.copytree(_saved(), path))
