"""Augmentation: pure functions of a key, jitted with the training step.

Each is a hashable description that maps a batch to a batch of the same shape
and type, so it serves uint8 training images and float exemplars alike (it is
differentiable in the pixels). To add one, write a class here or in a file of its
own, and add an entry to `registry.AUGMENTATIONS`.
"""

from collections.abc import Callable, Mapping
import dataclasses

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Num

from mnemonics_jax import registry

Images = Num[Array, "n h w c"]
Augmentation = Callable[[Array, Images], Images]
"""(key, images) -> images; hashable, since programs are compiled for it."""


def flip(key: Array, images: Images) -> Images:
  """Mirrors each image left-right with probability one half."""
  coin = jax.random.bernoulli(key, jnp.float32(0.5), (images.shape[0], 1, 1, 1))
  return jnp.where(coin, images[:, :, ::-1], images)


@dataclasses.dataclass(frozen=True)
class NoAugmentation:
  """The images as they are."""

  def __call__(self, key: Array, images: Images) -> Images:
    del key
    return images


@dataclasses.dataclass(frozen=True)
class CropFlip:
  """Zero-pad, crop back at a random place, flip (the CIFAR recipe).

  Attributes:
    pad: pixels added on each side.
    mirror: whether to flip; digits and letters should not be.
  """

  pad: int = 4
  mirror: bool = True

  def __call__(self, key: Array, images: Images) -> Images:
    n, *shape = images.shape
    crop_key, flip_key = jax.random.split(key)
    border = (self.pad, self.pad)
    padded = jnp.pad(images, ((0, 0), border, border, (0, 0)))
    offsets = jax.random.randint(
      crop_key, (n, 2), 0, 2 * self.pad + 1, jnp.int32
    )
    crop = lambda image, at: lax.dynamic_slice(
      image, (at[0], at[1], jnp.int32(0)), shape
    )
    images = jax.vmap(crop)(padded, offsets)
    return flip(flip_key, images) if self.mirror else images


@dataclasses.dataclass(frozen=True)
class ResizedCrop:
  """A random part of the image, resized to its full size, flipped (ImageNet).

  Attributes:
    area: range of the part's share of the image area.
    aspect: range of its aspect ratio, drawn log-uniformly.
  """

  area: tuple[float, float] = (0.08, 1.0)
  aspect: tuple[float, float] = (3 / 4, 4 / 3)

  def __call__(self, key: Array, images: Images) -> Images:
    box_key, flip_key = jax.random.split(key)
    keys = jax.random.split(box_key, images.shape[0])
    return flip(flip_key, jax.vmap(self._one)(keys, images))

  def _one(self, key, image):
    area_key, aspect_key, at_key = jax.random.split(key, 3)
    size = jnp.asarray(image.shape[:2], jnp.float32)
    area = jax.random.uniform(
      area_key, (), minval=self.area[0], maxval=self.area[1]
    )
    low, high = jnp.log(jnp.asarray(self.aspect))
    aspect = jnp.exp(
      jax.random.uniform(aspect_key, (), minval=low, maxval=high)
    )
    # Height and width of the part as shares of the image, at most all of it.
    box = jnp.minimum(jnp.sqrt(area * jnp.stack([1 / aspect, aspect])), 1.0)
    start = jax.random.uniform(at_key, (2,)) * (1.0 - box) * size
    scale = 1.0 / box
    resized = jax.image.scale_and_translate(
      image.astype(jnp.float32),
      image.shape,
      (0, 1),
      scale,
      -start * scale,
      "linear",
    )
    if jnp.issubdtype(image.dtype, jnp.integer):
      resized = jnp.clip(jnp.round(resized), 0, 255)
    return resized.astype(image.dtype)


NONE = NoAugmentation()
CROP = CropFlip(pad=1, mirror=False)
CROP_FLIP = CropFlip()
RESIZED_CROP = ResizedCrop()

AUGMENTATIONS: Mapping[str, Augmentation] = registry.Objects(
  registry.AUGMENTATIONS
)
