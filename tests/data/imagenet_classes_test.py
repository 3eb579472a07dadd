"""Which classes ImageNet has, by lists that others have made."""

import collections

import pytest

from mnemonics_jax import protocol
from mnemonics_jax.data import imagenet
from mnemonics_jax.data.imagenet import WORLDS


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
