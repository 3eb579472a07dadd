"""Stored pixels and floats: there and back without loss."""

import jax.numpy as jnp
import numpy as np

from mnemonics_jax.nn import pixels

ALL = np.arange(256, dtype=np.uint8)


def test_every_grey_level_survives_the_way_there_and_back():
  floats = pixels.from_uint8(ALL)
  assert floats.dtype == jnp.float32
  assert float(floats[0]) == 0.0 and float(floats[255]) == 1.0
  np.testing.assert_allclose(floats, np.arange(256) / 255, rtol=1e-6)
  np.testing.assert_array_equal(pixels.to_uint8(floats), ALL)


def test_what_already_has_the_form_passes_unchanged():
  floats = jnp.array([0.1, 0.9])
  assert pixels.from_uint8(floats) is floats
  levels = jnp.asarray(ALL)
  assert pixels.to_uint8(levels) is levels


def test_floats_are_rounded_to_the_nearest_level_and_clipped():
  levels = pixels.to_uint8(jnp.array([-3.0, 0.49, 1.51, 254.6, 400.0]) / 255)
  assert levels.dtype == jnp.uint8
  assert levels.tolist() == [0, 0, 2, 255, 255]
