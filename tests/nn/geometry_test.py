"""The size of what a convolution gives."""

import itertools

import numpy as np
import pytest

from mnemonics_jax.nn.conv import Geometry


@pytest.mark.parametrize(
  "kernel, stride, padding",
  [(3, 1, 1), (3, 2, 1), (1, 2, 0), (7, 2, 3), (5, 3, 1)],
)
def test_outputs_are_counted_one_by_one(kernel, stride, padding):
  for size in itertools.product((7, 8, 9), (12, 13)):
    geometry = Geometry(size, kernel, stride, padding)
    padded = (np.pad(np.zeros(n), padding) for n in size)
    starts = (range(0, len(n) - kernel + 1, stride) for n in padded)
    assert geometry.out_size == tuple(map(len, starts))


def test_equal_ones_find_the_same_program():
  assert hash(Geometry((8, 8), 3, 1, 1)) == hash(Geometry((8, 8), 3, 1, 1))
