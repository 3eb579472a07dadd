"""Images in blocks give what they give all at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.nn import model


@pytest.mark.parametrize("rows", [1, 255, 256, 257])
def test_rows_on_the_device_come_back_in_order(rows):
  images = jnp.arange(2.0 * rows).reshape(rows, 2)
  out = model.map_blocks(lambda block: block.sum(-1), images)
  np.testing.assert_array_equal(out, np.arange(rows) * 4 + 1)


@pytest.mark.parametrize("rows", [0, 1, 256, 300])
def test_rows_on_the_host_come_back_in_order(rows):
  images = np.arange(2.0 * rows, dtype=np.float32).reshape(rows, 2)
  same, sums = model.stream_blocks(lambda x: (x, x.sum(-1)), images)
  np.testing.assert_array_equal(same, images)
  np.testing.assert_array_equal(sums, np.arange(rows) * 4 + 1)


def test_any_number_of_rows_on_the_host_is_one_program():
  traced = []

  @jax.jit
  def apply(block):
    traced.append(block.shape)
    return (block,)

  for rows in (1, 100, 256, 600):
    model.stream_blocks(apply, np.zeros((rows, 2), np.float32))
  assert traced == [(256, 2)]
