"""Augmentation: what it may change and what it must not."""

import jax
import jax.numpy as jnp
import numpy as np

from mnemonics_jax.nn import augment
from mnemonics_jax.nn.pixels import from_uint8

IMAGES = jax.random.randint(jax.random.key(0), (64, 8, 8, 3), 1, 256).astype(
  jnp.uint8
)


def test_flip_mirrors_width_and_keeps_colours():
  images = jnp.arange(2 * 3 * 3, dtype=jnp.uint8).reshape(1, 2, 3, 3)
  images = jnp.tile(images, (64, 1, 1, 1))
  out = np.asarray(augment.flip(jax.random.key(1), images))
  mirrored = np.asarray(images)[:, :, ::-1]
  same = (out == np.asarray(images)).all((1, 2, 3))
  flipped = (out == mirrored).all((1, 2, 3))
  assert np.all(same | flipped)
  assert 16 < flipped.sum() < 48


def test_crop_is_a_window_of_the_padded_image():
  out = np.asarray(augment.CropFlip(2, mirror=False)(jax.random.key(1), IMAGES))
  padded = np.pad(np.asarray(IMAGES), ((0, 0), (2, 2), (2, 2), (0, 0)))
  offsets = set()
  for image, source in zip(out, padded, strict=True):
    hits = [
      (i, j)
      for i in range(5)
      for j in range(5)
      if (source[i : i + 8, j : j + 8] == image).all()
    ]
    assert len(hits) == 1
    offsets.add(hits[0])
  # All rows and columns of offsets occur.
  assert {i for i, _ in offsets} == {j for _, j in offsets} == set(range(5))


def test_same_key_same_batch_and_types_are_kept():
  for transform in (augment.CropFlip(), augment.ResizedCrop()):
    one = jax.jit(transform)(jax.random.key(3), IMAGES)
    two = transform(jax.random.key(3), IMAGES)
    assert one.dtype == jnp.uint8 and one.shape == IMAGES.shape
    assert np.abs(one.astype(int) - two.astype(int)).max() <= 1
    other = transform(jax.random.key(4), IMAGES)
    assert (one != other).any()
    as_float = transform(jax.random.key(3), from_uint8(IMAGES))
    np.testing.assert_allclose(as_float * 255, one, atol=0.51)


def test_resized_crop_of_everything_is_the_image():
  whole = augment.ResizedCrop(area=(1.0, 1.0), aspect=(1.0, 1.0))
  out = np.asarray(whole(jax.random.key(0), IMAGES))
  source = np.asarray(IMAGES)
  for image, original in zip(out, source, strict=True):
    assert (image == original).all() or (image == original[:, ::-1]).all()


def test_resized_crop_enlarges_a_part():
  # A vertical ramp: a crop of a quarter of the area has half its range.
  ramp = jnp.broadcast_to(
    jnp.linspace(0, 1, 32)[None, :, None, None], (16, 32, 32, 3)
  )
  part = augment.ResizedCrop(area=(0.25, 0.25), aspect=(1.0, 1.0))
  out = np.asarray(part(jax.random.key(0), ramp))
  spread = out.max((1, 2, 3)) - out.min((1, 2, 3))
  np.testing.assert_allclose(spread, 0.5, atol=0.04)


def test_pixels_have_gradients():
  grad = jax.grad(lambda x: augment.CropFlip(1)(jax.random.key(0), x).sum())
  out = grad(from_uint8(IMAGES))
  assert set(np.unique(out)) == {0.0, 1.0}
