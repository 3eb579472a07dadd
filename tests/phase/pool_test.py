"""Images on the device, padded to a capacity."""

import numpy as np
import pytest

from mnemonics_jax.phase.feed import make_pool

IMAGES = np.arange(3 * 12, dtype=np.uint8).reshape(3, 2, 2, 3)
LABELS = np.array([4, 0, 2])


def test_what_is_missing_to_the_capacity_is_zero():
  pool = make_pool(IMAGES, LABELS, 5)
  np.testing.assert_array_equal(pool.images[:3], IMAGES)
  assert not pool.images[3:].any() and pool.images.shape == (5, 2, 2, 3)
  assert pool.labels.tolist() == [4, 0, 2, 0, 0]
  assert pool.count == 3


@pytest.mark.parametrize("rows, capacity", [(3, 2), (0, 2)])
def test_a_pool_that_does_not_hold_its_images_is_refused(rows, capacity):
  with pytest.raises(ValueError, match=f"{rows} images for a pool of 2"):
    make_pool(IMAGES[:rows], LABELS[:rows], capacity)
