"""The class stream: right images, right labels, nothing else."""

import numpy as np
import pytest
import tiny

from mnemonics_jax.stream import ClassStream

DATA = tiny.dataset()
ORDER = [4, 2, 0, 5, 1, 3]


def test_labels_are_learned_order_indices():
  stream = ClassStream(DATA, ORDER, (3, 3))
  assert stream.class_names[:2] == ("class 4", "class 2")
  data = stream[1]
  for index, original in ((3, 5), (4, 1), (5, 3)):
    np.testing.assert_array_equal(
      data.images[data.labels == index],
      DATA.train_images[DATA.train_labels == original],
    )
  assert data.new_classes == 3


def test_each_training_image_appears_in_exactly_one_phase():
  stream = ClassStream(DATA, ORDER, (1, 2, 3))
  seen = [image.tobytes() for data in stream for image in data.images]
  assert sorted(seen) == sorted(i.tobytes() for i in DATA.train_images)


def test_tests_cover_all_classes_seen():
  stream = ClassStream(DATA, ORDER, (1, 2, 3))
  for data, seen in zip(stream, (1, 3, 6), strict=True):
    assert np.bincount(data.test_labels).tolist() == [6] * seen


def test_joint_accumulates():
  stream = ClassStream(DATA, ORDER, (1, 2, 3), joint=True)
  assert [len(data.labels) for data in stream] == [12, 36, 72]


def test_images_per_class_limits_training_only():
  stream = ClassStream(DATA, ORDER, (6,), images_per_class=4)
  assert stream.class_sizes == [4] * 6
  assert len(stream[0].labels) == 24 and len(stream[0].test_labels) == 36


def test_phases_out_of_range():
  with pytest.raises(IndexError):
    ClassStream(DATA, ORDER, (6,))[1]
