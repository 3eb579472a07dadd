"""ImageNet and ImageNet-Subset: their classes, by lists of others; what is loaded."""

import collections

import numpy as np
import pytest
from support import imagenet as small

from mnemonics_jax import data, protocol
from mnemonics_jax.data import imagenet
from mnemonics_jax.data.imagenet import WORLDS
from mnemonics_jax.data.prepare import prepare_imagenet


def test_the_subset_has_the_classes_and_the_order_of_the_papers():
  # Drawn by a Mersenne Twister of Python's own, seeded and used as NumPy does.
  subset = WORLDS["imagenet_subset"]()
  assert (subset.wnids[0], subset.wnids[-1]) == ("n01514668", "n15075141")
  assert len(subset.wnids) == 100 and list(subset.wnids) == sorted(subset.wnids)
  learned = [subset.wnids[i] for i in protocol.class_order(100)]
  assert (learned[0], learned[-1]) == ("n03710193", "n02168699")
  # Not the order of the draw, which would have other base classes.
  every = imagenet.all_wnids()
  drawn = [every[i] for i in protocol.class_subset(1000, 100)]
  assert (drawn[0], drawn[-1]) == ("n01729322", "n01689811")
  assert len({*drawn[:50]} & {*learned[:50]}) == 26


def test_every_class_has_fifty_validation_images():
  labels = imagenet.validation_labels()
  counts = collections.Counter(labels)
  assert counts.keys() == set(imagenet.all_wnids())
  assert set(counts.values()) == {50}


@pytest.mark.parametrize(
  "name, wnid",
  [
    ("ILSVRC2012_val_00000001.JPEG", "n01751748"),
    ("ILSVRC2012_val_00050000.JPEG", "n02437616"),
    ("ILSVRC2012_val_00000000.JPEG", None),
    ("ILSVRC2012_val_00050001.JPEG", None),
    ("ILSVRC2012_val_1.JPEG", None),
    ("n01440764_1.JPEG", None),
  ],
)
def test_validation_images_are_known_by_their_numbers(name, wnid):
  assert imagenet.validation_wnid(name) == wnid


def test_a_part_keeps_the_order_and_asks_for_no_numbers():
  world = WORLDS["imagenet_subset"]()
  first, second, *_ = world.wnids
  part = world.only({second, first, "n99999999"})
  assert part.wnids == (first, second) and part.reduced
  assert part.least == {"train": 1, "validation": 1} and part.total == {}


def test_the_subset_is_found_within_imagenet_or_alone(tmp_path):
  for layout in ("class folders", "tfrecord"):
    source = small.LAYOUTS[layout](tmp_path / layout)
    everything, alone = tmp_path / f"{layout} 1", tmp_path / f"{layout} 2"
    prepare_imagenet(WORLDS["imagenet"](), source, everything, reduced=True)
    subset = WORLDS["imagenet_subset"]()
    prepare_imagenet(subset, source, alone, reduced=True)
    found = [
      data.load("imagenet_subset", root, image_size=16, workers=0)
      for root in (everything, alone)
    ]
    assert [each.class_names for each in found] == [small.WNIDS[1:]] * 2
    assert found[0].checksum == found[1].checksum
    assert "2 of 100 classes, 8 training" in found[0].departures[0]
    images = [np.asarray(each.train_images) for each in found]
    np.testing.assert_array_equal(*images)


def load(root, **options):
  return data.load("imagenet", root, image_size=16, **options)


def test_labels_follow_the_sorted_classes(prepared_imagenet):
  loaded = load(prepared_imagenet, workers=0)
  assert loaded.class_names == small.WNIDS
  assert loaded.train_labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
  assert loaded.test_labels.tolist() == [0, 0, 1, 1, 2, 2]
  assert loaded.image_shape == (16, 16, 3)
  # As papers and torchvision have them.
  assert loaded.mean == (0.485, 0.456, 0.406)
  assert loaded.std == (0.229, 0.224, 0.225)
  assert data.stream(loaded, phases=2).class_sizes == (4, 4, 4)


@pytest.mark.parametrize(
  "options, said",
  [
    (dict(workers=-1), "`workers=-1` cannot be used; choose 0 to"),
    (dict(decoder="cv2"), "`decoder=cv2` is not known; choose pillow or"),
    (dict(image_size=4), "`image_size=4` cannot be used; choose 8 to 1024"),
  ],
)
def test_options_that_cannot_be_used(prepared_imagenet, options, said):
  with pytest.raises(data.DataError, match=said):
    data.load("imagenet", prepared_imagenet, **options)


def test_a_directory_without_imagenet_names_the_command(tmp_path):
  for root, state in (
    (tmp_path, "has no"),
    (tmp_path / "no", "does not exist"),
  ):
    with pytest.raises(data.DataError) as caught:
      data.load("imagenet_subset", root)
    assert state in caught.value.problem
    assert "mnemonics_jax.data.prepare" in caught.value.fix
