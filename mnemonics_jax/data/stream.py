"""Cuts a data set into phases, each of which gets its own data and nothing else.

`stream` follows the usual protocol. `for_tuning` tests on held-out training images.
`Extension` adds new classes to those of a run.
"""

from collections.abc import Sequence
import dataclasses
from typing import NamedTuple

from jaxtyping import Int
import numpy as np

from mnemonics_jax import protocol
from mnemonics_jax.data.dataset import DataError, Dataset
from mnemonics_jax.data.images import Images, varies
from mnemonics_jax.errors import check_count


class PhaseData(NamedTuple):
  """The data of one phase.

  Attributes:
    images: training images of the new classes (of all seen ones if the method
      is the joint upper bound), in memory or on a disk.
    labels: their classes, in learned order.
    new_classes: how many classes arrive.
    test_images: test images of all classes seen, new ones included.
    test_labels: their classes.
  """

  images: Images
  labels: Int[np.ndarray, " n"]
  new_classes: int
  test_images: Images
  test_labels: Int[np.ndarray, " m"]


class StreamShape(NamedTuple):
  """The sizes of a stream, which decide those of a run's arrays; hashable.

  Attributes:
    class_sizes: training images of each class, in learned order.
    classes_per_phase: how many classes each phase brings.
    image_shape: height, width and channels.
    joint: whether every phase sees the training data of earlier ones too.
  """

  class_sizes: tuple[int, ...]
  classes_per_phase: tuple[int, ...]
  image_shape: tuple[int, int, int]
  joint: bool = False

  @property
  def classes(self) -> int:
    """How many there are."""
    return len(self.class_sizes)

  @property
  def phases(self) -> int:
    """How many there are, the base phase included."""
    return len(self.classes_per_phase)

  @property
  def smallest_class(self) -> int:
    """Training images of the class that has fewest."""
    return min(self.class_sizes)


class ClassStream:
  """A data set cut into phases, its labels replaced by learned-order indices.

  `stream` makes one by the usual protocol; this one has an order of its own:

  Args:
    dataset: all images.
    order: the order in which classes are learned; others are left out.
    classes_per_phase: how many classes each phase brings.
    images_per_class: keep only the first training images of each class.
    joint: let every phase see the training data of earlier ones too.

  Attributes:
    name: of the data set.
    class_names: of each class, in learned order.
    class_sizes: training images of each class, in learned order.
    classes_per_phase: how many classes each phase brings.
    image_shape: height, width and channels.
    mean: per channel, of pixels scaled to [0, 1]; for normalisation.
    std: per channel, of pixels scaled to [0, 1]; for normalisation.
    notes: what a user should know about the data.
    departures: in what they are not those of the papers.
    joint: whether every phase sees the training data of earlier ones too.
  """

  def __init__(
    self,
    dataset: Dataset,
    order: Sequence[int] | Int[np.ndarray, " classes"],
    classes_per_phase: Sequence[int],
    *,
    images_per_class: int | None = None,
    joint: bool = False,
  ):
    if images_per_class is not None:
      check_count("images_per_class", images_per_class, least=1)
    self._dataset = dataset
    rank = np.full(len(dataset.class_names), -1, np.int32)
    rank[np.asarray(order)] = np.arange(len(order))
    self._train = _rows_by_class(
      rank[dataset.train_labels], len(order), images_per_class
    )
    self._test = _rows_by_class(rank[dataset.test_labels], len(order))
    self.name = dataset.name
    self.class_names = tuple(dataset.class_names[c] for c in order)
    self.class_sizes = tuple(len(rows) for rows in self._train)
    self.classes_per_phase = tuple(classes_per_phase)
    self.image_shape = dataset.image_shape
    self.mean, self.std = dataset.mean, dataset.std
    self.notes, self.departures = dataset.notes, dataset.departures
    self.joint = joint

  def __len__(self) -> int:
    return len(self.classes_per_phase)

  def __getitem__(self, phase: int) -> PhaseData:
    if not 0 <= phase < len(self):
      raise IndexError(phase)
    n_old = sum(self.classes_per_phase[:phase])
    n_seen = n_old + self.classes_per_phase[phase]
    first = 0 if self.joint else n_old
    train, labels = _concatenate(self._train, first, n_seen)
    test, test_labels = _concatenate(self._test, 0, n_seen)
    return PhaseData(
      self._dataset.train_images[train],
      labels,
      self.classes_per_phase[phase],
      self._dataset.test_images[test],
      test_labels,
    )

  @property
  def shape(self) -> StreamShape:
    """The sizes that a configuration needs."""
    return StreamShape(
      self.class_sizes, self.classes_per_phase, self.image_shape, self.joint
    )

  @property
  def varies(self) -> bool:
    """Whether training sees images differently in every epoch."""
    return varies(self._dataset.train_images)

  @property
  def checksum(self) -> int:
    """A number that changes with the images and labels of the data set."""
    return self._dataset.checksum


def stream(
  dataset: Dataset,
  *,
  phases: int,
  base_classes: int | None = None,
  classes: int | None = None,
  order_seed: int = 1993,
  images_per_class: int | None = None,
  joint: bool = False,
) -> ClassStream:
  """Cuts a data set into phases by the usual protocol.

  Args:
    dataset: all images.
    phases: N, the number of incremental phases after phase 0. With 0 the
      classes that are not phase 0's are left out.
    base_classes: classes of phase 0; None means half of them. With 0 there is
      no base phase: the first of the N phases is phase 0.
    classes: learn only the first ones of the order; None means all.
    order_seed: decides the order in which classes arrive.
    images_per_class: keep only the first training images of each class.
    joint: let every phase see the training data of earlier ones too.
  """
  check_count("order_seed", order_seed, most=2**32 - 1)
  available = len(dataset.class_names)
  if classes is None:
    classes = available
  check_count("classes", classes, least=1, most=available)
  split = protocol.split_phases(classes, phases, base_classes)
  return ClassStream(
    dataset,
    protocol.class_order(available, order_seed)[: sum(split)],
    split,
    images_per_class=images_per_class,
    joint=joint,
  )


def _rows_by_class(labels, classes, limit=None):
  """For each class the rows that show it, at most `limit`."""
  return [np.flatnonzero(labels == label)[:limit] for label in range(classes)]


def _concatenate(rows_by_class, start, stop):
  """The rows of classes `start` to `stop`, and their labels."""
  rows = rows_by_class[start:stop]
  labels = np.repeat(np.arange(start, stop), [len(r) for r in rows])
  return np.concatenate(rows), labels.astype(np.int32)


def for_tuning(dataset: Dataset, fraction: float) -> Dataset:
  """Replaces the test images by held-out training images.

  Settings that are chosen by such tests have not seen the test images.

  Args:
    dataset: all images; its test images are left out.
    fraction: share of the training images of each class to test on, the last.
  """
  if not 0 < fraction < 1:
    raise DataError(
      "tuning_fraction",
      f"`tuning_fraction={fraction}` cannot be used",
      "it must lie between 0 and 1",
    )
  held = np.zeros(len(dataset.train_labels), bool)
  for label in range(len(dataset.class_names)):
    rows = np.flatnonzero(dataset.train_labels == label)
    if len(rows) < 2:
      raise DataError(
        "tuning_fraction",
        f"`tuning_fraction` leaves nothing of {dataset.class_names[label]} to"
        " train on",
        "give every class two training images or more",
      )
    held[rows[-min(max(round(fraction * len(rows)), 1), len(rows) - 1) :]] = (
      True
    )
  return dataclasses.replace(
    dataset,
    train_images=dataset.train_images[~held],
    train_labels=dataset.train_labels[~held],
    test_images=dataset.train_images[held],
    test_labels=dataset.train_labels[held],
    notes=(
      *dataset.notes,
      f"tests are {held.sum():,} held-out training images, for choosing settings;"
      " the test images were left out.",
    ),
  )


class Extension(ClassStream):
  """The finished phases of a run, followed by phases with new classes.

  New classes are those whose names the run does not know. Of learned classes, only
  the test images are used; a data set need not have all of these classes.

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
    _check_extension(dataset, new, shape, phases)
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


def _check_extension(dataset, new, shape, phases):
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
