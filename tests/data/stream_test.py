"""The class stream: right images, right labels, nothing else; tuning; extensions."""

import dataclasses
import zlib

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import data as data_lib
from mnemonics_jax.data import ClassStream, DataError, StreamShape
from mnemonics_jax.data.stream import Extension
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


# Held-out training images: nothing of the test images is seen.


def test_the_last_training_images_of_each_class_are_tested():
  whole = tiny.dataset(classes=3, train=12, test=5)
  order = np.random.default_rng(0).permutation(36)
  whole = dataclasses.replace(
    whole,
    train_images=whole.train_images[order],
    train_labels=whole.train_labels[order],
  )
  found = data_lib.for_tuning(whole, 0.25)
  for label in range(3):
    own = whole.train_images[whole.train_labels == label]
    trained = found.train_images[found.train_labels == label]
    tested = found.test_images[found.test_labels == label]
    np.testing.assert_array_equal(trained, own[:9])
    np.testing.assert_array_equal(tested, own[9:])
  assert "9 held-out training images" in found.notes[-1]
  assert found.checksum != whole.checksum
  data_lib.verify(found)


def test_of_every_class_something_is_trained_on_and_tested():
  whole = tiny.dataset(classes=2, train=2)
  for fraction in (0.01, 0.99):
    found = data_lib.for_tuning(whole, fraction)
    assert found.train_labels.tolist() == found.test_labels.tolist() == [0, 1]


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.5, float("nan")])
def test_shares_that_leave_nothing_are_refused(fraction):
  with pytest.raises(UserError, match="`tuning_fraction="):
    data_lib.for_tuning(tiny.dataset(), fraction)
  with pytest.raises(UserError, match="nothing of class 0 to train on"):
    data_lib.for_tuning(tiny.dataset(classes=2, train=1), 0.5)


# Phases that follow those of a run.

# A run has learned c, then a, from other images of them.
LEARNED = StreamShape((7, 9), (1, 1), image_shape=(8, 8, 3))
MORE = dataclasses.replace(
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
  longer = Extension(MORE, ("c", "a"), LEARNED, phases=2)
  assert longer.class_names == ("c", "a", "b", "d", "e")
  assert longer.classes_per_phase == (1, 1, 2, 1)
  assert longer.class_sizes == (7, 9, 6, 6, 6)
  assert longer.untested == ()


def test_of_learned_classes_there_are_test_images_only():
  longer = Extension(MORE, ("c", "a"), LEARNED)
  phase = longer[2]
  assert sorted(set(phase.labels.tolist())) == [2, 3, 4]
  assert sorted(set(phase.test_labels.tolist())) == [0, 1, 2, 3, 4]
  # Number 2 is b, which is number 1 in the data set.
  np.testing.assert_array_equal(
    np.asarray(phase.images)[phase.labels == 2],
    MORE.train_images[MORE.train_labels == 1],
  )


def test_classes_without_test_images_are_known():
  longer = Extension(without(MORE, "a"), ("c", "a"), LEARNED)
  assert longer.untested == ("a",)


@pytest.mark.parametrize(
  "learned, shape, phases, problem",
  [
    ("abcde", LEARNED, 1, "no class that the run does not know"),
    ("ca", LEARNED._replace(image_shape=(9, 9, 3)), 1, "learned from"),
    ("ca", LEARNED, 4, "`phases=4` cannot share 3 new classes"),
    ("ca", LEARNED, 0, "`phases=0`"),
  ],
)  # fmt: skip
def test_what_cannot_follow_is_refused(learned, shape, phases, problem):
  with pytest.raises(DataError, match=problem):
    Extension(MORE, tuple(learned), shape, phases=phases)
