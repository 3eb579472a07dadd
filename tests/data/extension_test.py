"""Phases that follow those of a run."""

import dataclasses

import numpy as np
import pytest
from support import tiny

from mnemonics_jax.data import DataError, StreamShape
from mnemonics_jax.data.stream import Extension

# A run has learned c, then a, from other images of them.
SHAPE = StreamShape((7, 9), (1, 1), image_shape=(8, 8, 3))
DATA = dataclasses.replace(
  tiny.dataset(classes=5, train=6, test=2),
  class_names=("a", "b", "c", "d", "e"),
)


def without(dataset, *names):
  """The data set without test images of some classes."""
  labels = [dataset.class_names.index(name) for name in names]
  kept = ~np.isin(dataset.test_labels, labels)
  return dataclasses.replace(
    dataset,
    test_images=dataset.test_images[kept],
    test_labels=dataset.test_labels[kept],
  )


def test_learned_classes_keep_their_numbers_and_sizes():
  longer = Extension(DATA, ("c", "a"), SHAPE, phases=2)
  assert longer.class_names == ("c", "a", "b", "d", "e")
  assert longer.classes_per_phase == (1, 1, 2, 1)
  assert longer.class_sizes == (7, 9, 6, 6, 6)
  assert longer.untested == ()


def test_of_learned_classes_there_are_test_images_only():
  longer = Extension(DATA, ("c", "a"), SHAPE)
  phase = longer[2]
  assert sorted(set(phase.labels.tolist())) == [2, 3, 4]
  assert sorted(set(phase.test_labels.tolist())) == [0, 1, 2, 3, 4]
  # Number 2 is b, which is number 1 in the data set.
  np.testing.assert_array_equal(
    np.asarray(phase.images)[phase.labels == 2],
    DATA.train_images[DATA.train_labels == 1],
  )


def test_classes_without_test_images_are_known():
  longer = Extension(without(DATA, "a"), ("c", "a"), SHAPE)
  assert longer.untested == ("a",)


@pytest.mark.parametrize(
  "learned, shape, phases, problem",
  [
    ("abcde", SHAPE, 1, "no class that the run does not know"),
    ("ca", SHAPE._replace(image_shape=(9, 9, 3)), 1, "learned from"),
    ("ca", SHAPE, 4, "`phases=4` cannot share 3 new classes"),
    ("ca", SHAPE, 0, "`phases=0`"),
  ],
)  # fmt: skip
def test_what_cannot_follow_is_refused(learned, shape, phases, problem):
  with pytest.raises(DataError, match=problem):
    Extension(DATA, tuple(learned), shape, phases=phases)
