"""A run that has finished, with checkpoints, and its data as a folder."""

from collections.abc import Iterable
import dataclasses
import functools
from pathlib import Path
import shutil
import tempfile
from typing import Any

import numpy as np
from PIL import Image

from mnemonics_jax import methods, runs
from mnemonics_jax.data import ClassStream, Dataset
from support import tiny

ALL = tiny.dataset(classes=6)
OPTIONS: dict[str, Any] = dict(
  finetune="head", base=tiny.SCHEDULE, train=tiny.SCHEDULE
)
METHOD = methods.LUCIR()


def part(classes: int) -> Dataset:
  """The first classes of all."""
  train, test = ALL.train_labels < classes, ALL.test_labels < classes
  return dataclasses.replace(
    ALL,
    train_images=ALL.train_images[train],
    train_labels=ALL.train_labels[train],
    test_images=ALL.test_images[test],
    test_labels=ALL.test_labels[test],
    class_names=ALL.class_names[:classes],
  )


def learn(path: Path, split: tuple[int, ...], seeds=(0,)) -> ClassStream:
  """Learns the first classes in these phases."""
  data = part(sum(split))
  config, stream = tiny.setup(METHOD, split=split, data=data, **OPTIONS)
  runs.run(config, stream, path, seeds=seeds)
  return stream


@functools.cache
def _finished() -> Path:
  path = Path(tempfile.mkdtemp(prefix="finished_run_")) / "run"
  learn(path, (3, 1), seeds=(0, 1))
  return path


def write(path: Path) -> Path:
  """A copy of a run over two seeds that learned 3 classes, then 1, at `path`."""
  return Path(shutil.copytree(_finished(), path))


def write_folder(
  root: Path, classes: Iterable[int], splits=("train", "val")
) -> Path:
  """Images of these classes as files that are decoded to the same pixels."""
  data = {
    "train": (ALL.train_images, ALL.train_labels),
    "val": (ALL.test_images, ALL.test_labels),
  }
  for split in splits:
    images, labels = np.asarray(data[split][0]), data[split][1]
    for label in classes:
      folder = root / split / ALL.class_names[label]
      folder.mkdir(parents=True)
      for i, row in enumerate(np.flatnonzero(labels == label)):
        Image.fromarray(images[row]).save(folder / f"{i:03d}.png")
  return root
