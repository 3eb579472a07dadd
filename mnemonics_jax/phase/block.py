"""The batches of a few steps, on the device: what a compiled call trains on."""

import math
from typing import NamedTuple

from jaxtyping import Array, Int, UInt8

from mnemonics_jax.phase.schedule import Schedule

BYTES = 2**26


class Block(NamedTuple):
  """The batches of consecutive steps of an epoch.

  Wherever images come from, these have the same shape: the same program trains
  on them, and gives the same bits.

  >>> import jax.numpy as jnp
  >>> images = jnp.zeros((2, 4, 8, 8, 3), jnp.uint8)  # Two steps of four images.
  >>> block = Block(images, jnp.zeros((2, 4), jnp.int32), first=jnp.int32(6))
  >>> block.images[7 - block.first].shape  # Those of step 7.
  (4, 8, 8, 3)

  Attributes:
    images: uint8 pixels; several devices have a share of every batch each.
    labels: class of each image.
    first: number of the first of these steps.
  """

  images: UInt8[Array, "steps batch h w c"]
  labels: Int[Array, "steps batch"]
  first: Int[Array, ""]


def block_steps(
  schedule: Schedule, capacity: int, image_shape: tuple[int, ...]
) -> int:
  """How many steps a block has: as many as fit, at most those of an epoch.

  >>> block_steps(Schedule(batch_size=128), 50_000, (32, 32, 3))
  170
  >>> block_steps(Schedule(batch_size=128), 1_300_000, (224, 224, 3))
  3

  Args:
    schedule: batch size.
    capacity: images that an epoch may have in some phase.
    image_shape: height, width and channels.
  """
  step_bytes = schedule.batch_size * math.prod(image_shape)
  return max(1, min(BYTES // step_bytes, schedule.steps(capacity)))
