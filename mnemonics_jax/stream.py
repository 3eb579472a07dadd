"""The stream of classes: gives each phase its own data and nothing else."""

from collections.abc import Sequence

import numpy as np

from mnemonics_jax.data import Dataset
from mnemonics_jax.phase import PhaseData


class ClassStream:
  """A data set cut into phases, its labels replaced by learned-order indices.

  Args:
    dataset: all images.
    order: the order in which classes are learned.
    classes_per_phase: how many classes each phase brings.
    images_per_class: keep only the first training images of each class.
    joint: let every phase see the training data of earlier ones too.
  """

  def __init__(
    self,
    dataset: Dataset,
    order: Sequence[int],
    classes_per_phase: Sequence[int],
    *,
    images_per_class: int | None = None,
    joint: bool = False,
  ):
    self._dataset = dataset
    self.classes_per_phase = tuple(classes_per_phase)
    self._joint = joint
    self.class_names = tuple(dataset.class_names[c] for c in order)
    rank = np.empty(len(order), np.int32)
    rank[np.asarray(order)] = np.arange(len(order))
    self._train = _by_class(rank[dataset.train_labels], images_per_class)
    self._test = _by_class(rank[dataset.test_labels])

  def __len__(self) -> int:
    return len(self.classes_per_phase)

  @property
  def class_sizes(self) -> list[int]:
    """Training images of each class, in learned order."""
    return [len(rows) for rows in self._train]

  def __getitem__(self, phase: int) -> PhaseData:
    if not 0 <= phase < len(self):
      raise IndexError(phase)
    n_old = sum(self.classes_per_phase[:phase])
    n_seen = n_old + self.classes_per_phase[phase]
    first = 0 if self._joint else n_old
    train, labels = _rows(self._train, first, n_seen)
    test, test_labels = _rows(self._test, 0, n_seen)
    return PhaseData(
      self._dataset.train_images[train],
      labels,
      self.classes_per_phase[phase],
      self._dataset.test_images[test],
      test_labels,
    )


def _by_class(labels, limit=None):
  """For each class the rows that show it, at most `limit`."""
  return [
    np.flatnonzero(labels == label)[:limit] for label in range(labels.max() + 1)
  ]


def _rows(by_class, start, stop):
  rows = by_class[start:stop]
  labels = np.repeat(np.arange(start, stop), [len(r) for r in rows])
  return np.concatenate(rows), labels.astype(np.int32)
