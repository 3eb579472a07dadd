"""JPEG with a gradient, against Pillow's."""

import io

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import pytest

from mnemonics_jax import memory
from mnemonics_jax.nn.jpeg import JpegLoss, tables

RNG = np.random.default_rng(0)
SMALL = RNG.integers(0, 256, (20, 6, 6, 3), np.uint8)
IMAGES = np.stack(
  [Image.fromarray(x).resize((28, 30), Image.Resampling.BICUBIC) for x in SMALL]
)


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
