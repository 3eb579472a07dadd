"""Stored pixels and floats; JPEG with a gradient, against Pillow's."""

import io

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from mnemonics_jax import memory
from mnemonics_jax.nn.pixels import (
  JpegLoss,
  from_uint8,
  low_pass,
  tables,
  to_uint8,
)

RNG = np.random.default_rng(0)
SMALL = RNG.integers(0, 256, (20, 6, 6, 3), np.uint8)
IMAGES = np.stack(
  [Image.fromarray(x).resize((28, 30), Image.Resampling.BICUBIC) for x in SMALL]
)


ALL = np.arange(256, dtype=np.uint8)


def test_every_grey_level_survives_the_way_there_and_back():
  floats = from_uint8(ALL)
  assert floats.dtype == jnp.float32
  assert float(floats[0]) == 0.0 and float(floats[255]) == 1.0
  np.testing.assert_allclose(floats, np.arange(256) / 255, rtol=1e-6)
  np.testing.assert_array_equal(to_uint8(floats), ALL)


def test_what_already_has_the_form_passes_unchanged():
  floats = jnp.array([0.1, 0.9])
  assert from_uint8(floats) is floats
  levels = jnp.asarray(ALL)
  assert to_uint8(levels) is levels


def test_floats_are_rounded_to_the_nearest_level_and_clipped():
  levels = to_uint8(jnp.array([-3.0, 0.49, 1.51, 254.6, 400.0]) / 255)
  assert levels.dtype == jnp.uint8
  assert levels.tolist() == [0, 0, 2, 255, 255]


def left_of(images, quality):
  left = JpegLoss(quality)(jnp.asarray(images, jnp.float32) / 255)
  return np.asarray(255 * left)


@pytest.mark.parametrize("quality", [1, 25, 50, 75, 90, 100])
def test_tables_are_pillows(quality):
  content = memory.Jpeg(quality).write(IMAGES[0])
  with Image.open(io.BytesIO(content)) as picture:
    found = picture.quantization
  np.testing.assert_array_equal(
    tables(quality).reshape(2, 64), [found[0], found[1]]
  )


@pytest.mark.parametrize("quality", [30, 75, 95])
@pytest.mark.parametrize("channels", [1, 3])
def test_what_is_lost_is_what_pillow_loses(quality, channels):
  images = IMAGES[..., :channels]
  real = memory.round_trip(memory.Jpeg(quality), images).astype(np.float64)
  lost = np.abs(real - images).mean()
  found = left_of(images, quality)
  # Its arithmetic of whole numbers rounds a few coefficients the other way.
  assert np.abs(found - real).mean() < 0.15 * lost + 0.25
  np.testing.assert_allclose(found, found.round(), atol=1e-3)


def test_gradients_pass_as_if_nothing_were_lost():
  weight = jnp.asarray(RNG.normal(size=IMAGES[:2].shape), jnp.float32)
  # Far from black and white, where pixels are cut.
  images = 0.3 + 0.4 * jnp.asarray(IMAGES[:2], jnp.float32) / 255
  gradient = jax.grad(lambda x: (weight * JpegLoss(60)(x)).sum())(images)
  np.testing.assert_allclose(
    gradient[:, :24, :24], weight[:, :24, :24], atol=1e-3
  )


def test_low_frequencies_alone_pass():
  rows = np.cos(np.pi * (2 * np.arange(8) + 1) / 16)  # One half wave.
  fast = np.cos(np.pi * 5 * (2 * np.arange(8) + 1) / 16)
  image = (3 + rows[:, None] + fast[None])[None, ..., None].astype(np.float32)
  smooth = lambda k: np.asarray(low_pass(jnp.asarray(image), k))[0, ..., 0]
  np.testing.assert_allclose(smooth(1), 3, atol=1e-5)
  np.testing.assert_allclose(smooth(2)[:, 0], 3 + rows, atol=1e-5)
  np.testing.assert_allclose(smooth(5)[:, 0], 3 + rows, atol=1e-5)
  np.testing.assert_allclose(smooth(6), image[0, ..., 0], atol=1e-5)
  # What has passed passes again; a projection, also where blocks are cut.
  once = low_pass(jnp.asarray(IMAGES[:3, :24, :24], jnp.float32), 4)
  np.testing.assert_allclose(low_pass(once, 4), once, atol=1e-2)
  assert low_pass(jnp.asarray(IMAGES, jnp.float32), 4).shape == IMAGES.shape
