"""ImageNet-Subset, wherever its images are."""

import numpy as np
from support import imagenet

from mnemonics_jax import data
from mnemonics_jax.data.imagenet import WORLDS
from mnemonics_jax.data.prepare import prepare_imagenet


def test_the_subset_is_found_within_imagenet_or_alone(tmp_path):
  for layout in ("class folders", "tfrecord"):
    source = imagenet.LAYOUTS[layout](tmp_path / layout)
    everything, alone = tmp_path / f"{layout} 1", tmp_path / f"{layout} 2"
    prepare_imagenet(WORLDS["imagenet"](), source, everything, reduced=True)
    subset = WORLDS["imagenet_subset"]()
    prepare_imagenet(subset, source, alone, reduced=True)
    found = [
      data.load("imagenet_subset", root, image_size=16, workers=0)
      for root in (everything, alone)
    ]
    assert [each.class_names for each in found] == [imagenet.WNIDS[1:]] * 2
    assert found[0].checksum == found[1].checksum
    assert "2 of 100 classes, 8 training" in found[0].departures[0]
    images = [np.asarray(each.train_images) for each in found]
    np.testing.assert_array_equal(*images)
