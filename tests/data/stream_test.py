"""The class stream: right images, right labels, nothing else."""

import dataclasses
import zlib

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import data as data_lib
from mnemonics_jax.data import ClassStream
from mnemonics_jax.errors import UserError

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
    np.testing.assert_array_equal(
      data.test_images[data.test_labels == index],
      DATA.test_images[DATA.test_labels == original],
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
  assert stream.class_sizes == (4,) * 6
  assert len(stream[0].labels) == 24 and len(stream[0].test_labels) == 36


def test_without_later_phases_their_classes_are_left_out():
  whole = data_lib.stream(DATA, phases=2, base_classes=2)
  alone = data_lib.stream(DATA, phases=0, base_classes=2)
  assert alone.class_names == whole.class_names[:2]
  assert alone.class_sizes == whole.class_sizes[:2]
  assert alone.shape.classes == 2 and len(alone) == 1
  for mine, other in zip(alone[0], whole[0], strict=True):
    np.testing.assert_array_equal(mine, other)


def test_only_the_first_classes_may_be_learned():
  whole = data_lib.stream(DATA, phases=4, base_classes=2)
  few = data_lib.stream(DATA, phases=2, base_classes=2, classes=4)
  assert few.class_names == whole.class_names[:4]
  assert few.classes_per_phase == whole.classes_per_phase[:3]
  for mine, other in zip(few[2], whole[2], strict=True):
    np.testing.assert_array_equal(mine, other)


@pytest.mark.parametrize(
  "wrong",
  [
    dict(images_per_class=0),
    dict(images_per_class=2.5),
    dict(classes=0),
    dict(classes=2.5),
    dict(order_seed=-1),
    dict(order_seed=1.5),
    dict(phases=1.5),
  ],
)
def test_counts_are_refused_by_their_name(unchecked, wrong):
  (name,) = wrong
  with pytest.raises(UserError, match=f"`{name}=.* whole") as refused:
    data_lib.stream(DATA, **{"phases": 2, **wrong})
  assert refused.value.field == name


def test_phases_out_of_range():
  with pytest.raises(IndexError):
    ClassStream(DATA, ORDER, (6,))[1]


def test_what_is_known_without_looking_at_images():
  stream = ClassStream(DATA, ORDER, (4, 2), joint=True)
  assert (stream.name, stream.mean, stream.std) == ("tiny", DATA.mean, DATA.std)
  assert stream.notes == DATA.notes and stream.image_shape == (8, 8, 3)
  expected = data_lib.StreamShape((12,) * 6, (4, 2), (8, 8, 3), joint=True)
  assert stream.shape == expected
  assert hash(stream.shape) == hash(expected)


def test_class_sizes_are_in_learned_order():
  keep = np.flatnonzero(DATA.train_labels != 4)  # One image of class 4 is left.
  keep = np.append(keep, np.flatnonzero(DATA.train_labels == 4)[:1])
  few = dataclasses.replace(
    DATA,
    train_images=DATA.train_images[keep],
    train_labels=DATA.train_labels[keep],
  )
  assert ClassStream(few, ORDER, (3, 3)).class_sizes == (1, 12, 12, 12, 12, 12)


def test_the_checksum_covers_all_images_and_labels():
  stream = ClassStream(DATA, ORDER, (3, 3))
  arrays = (
    DATA.train_images, DATA.train_labels, DATA.test_images, DATA.test_labels
  )  # fmt: skip
  everything = b"".join(array.tobytes() for array in arrays)
  assert stream.checksum == zlib.crc32(everything)
  for name in ("train_images", "train_labels", "test_images", "test_labels"):
    changed = getattr(DATA, name).copy()
    changed.flat[-1] ^= 1
    other = dataclasses.replace(DATA, **{name: changed})
    assert ClassStream(other, ORDER, (3, 3)).checksum != stream.checksum, name
  # How it is cut makes no difference.
  assert ClassStream(DATA, ORDER[::-1], (6,)).checksum == stream.checksum


def test_the_convenient_stream_follows_the_protocol():
  stream = data_lib.stream(DATA, phases=2, base_classes=3, order_seed=7)
  order = np.arange(6)
  np.random.RandomState(7).shuffle(order)
  assert stream.class_names == tuple(f"class {c}" for c in order)
  assert stream.classes_per_phase == (3, 2, 1)
  usual = data_lib.stream(DATA, phases=3, images_per_class=2, joint=True)
  assert usual.shape == ((2,) * 6, (3, 1, 1, 1), (8, 8, 3), True)
