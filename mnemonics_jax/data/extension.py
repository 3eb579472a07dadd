"""New classes after those of a run, whose own data are elsewhere."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from mnemonics_jax import protocol
from mnemonics_jax.data.dataset import DataError, Dataset
from mnemonics_jax.data.stream import ClassStream, StreamShape


class Extension(ClassStream):
  """The phases of a run, which are over, and more with the classes it lacks.

  Of classes that were learned before, a data set gives test images only, and
  perhaps not of all of them. New classes arrive by name.

  >>> from mnemonics_jax import data
  >>> digits = data.load("digits")
  >>> shape = data.StreamShape((40, 40), (1, 1), image_shape=(8, 8, 3))
  >>> longer = Extension(digits, ("3", "1"), shape, phases=2)
  >>> longer.class_names[:4], longer.classes_per_phase
  (('3', '1', '0', '2'), (1, 1, 4, 4))
  >>> longer.class_sizes[:3]  # What was learned from, here or there.
  (40, 40, 143)

  Args:
    dataset: images of new classes, perhaps also of learned ones.
    learned: names of the learned classes, in order.
    shape: of the stream that they were learned from.
    phases: how many more; new classes are spread over them evenly.
  """

  def __init__(
    self,
    dataset: Dataset,
    learned: Sequence[str],
    shape: StreamShape,
    phases: int = 1,
  ):
    new = sorted(set(dataset.class_names) - set(learned))
    _check(dataset, new, shape, phases)
    names = (*learned, *new)
    place = {name: label for label, name in enumerate(names)}
    label_of = np.array([place[name] for name in dataset.class_names], np.int32)
    train = label_of[dataset.train_labels]
    rows = train >= len(learned)
    everything = dataclasses.replace(
      dataset,
      train_images=dataset.train_images[rows],
      train_labels=train[rows],
      test_labels=label_of[dataset.test_labels],
      class_names=names,
    )
    split = protocol.split_phases(len(new), phases, base_classes=0)
    super().__init__(
      everything, range(len(names)), (*shape.classes_per_phase, *split)
    )
    sizes = self.class_sizes[len(learned) :]
    self.class_sizes = (*shape.class_sizes, *sizes)
    self.untested = tuple(
      name
      for name, rows in zip(names, self._test, strict=True)
      if not len(rows)
    )


def _check(dataset, new, shape, phases):
  if not new:
    raise DataError(
      "data_dir",
      "`data_dir` has no class that the run does not know",
      "name a directory with new ones",
    )
  if dataset.image_shape != shape.image_shape:
    raise DataError(
      "data_dir",
      f"the images are {dataset.image_shape}, the run learned from"
      f" {shape.image_shape}",
      "resize them",
    )
  if not 1 <= phases <= len(new):
    raise DataError(
      "phases",
      f"`phases={phases}` cannot share {len(new)} new classes",
      f"use `phases=1` to `phases={len(new)}`",
    )
