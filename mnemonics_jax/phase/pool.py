"""The images a phase trains on, on the device, in one shape for the whole run."""

from collections.abc import Generator
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt8
import numpy as np

from mnemonics_jax.data.images import Images
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase.block import Block, block_steps
from mnemonics_jax.phase.order import epoch_order
from mnemonics_jax.phase.schedule import Schedule


class Pool(NamedTuple):
  """Training images on the device, padded to a capacity; a `Feed`.

  >>> pool = make_pool(np.ones((3, 8, 8, 3), np.uint8), np.arange(3), capacity=5)
  >>> pool.labels.tolist(), int(pool.count)  # Two rows of padding.
  ([0, 1, 2, 0, 0], 3)

  Attributes:
    images: uint8 pixels; devices may ask for more rows than the capacity.
    labels: class of each image.
    count: how many of the rows are real.
    quota: draws of each class in an epoch, None for every image once.
  """

  images: UInt8[Array, "rows h w c"]
  labels: Int[Array, " capacity"]
  count: Int[Array, ""]
  quota: Int[Array, " classes"] | None = None

  @property
  def draws(self) -> int:
    """Images that an epoch draws."""
    return int(self.count)

  def blocks(
    self, key: Array, schedule: Schedule, epoch: int = 0, step: int = 0
  ) -> Generator[tuple[Block, int], None, None]:
    """Copies of the images, in the order of the steps; see `Feed.blocks`."""
    steps = block_steps(schedule, len(self.labels), self.images.shape[1:])
    total = schedule.steps(self.draws)
    for number in range(epoch, schedule.epochs):
      key_now = jax.random.fold_in(key, number)
      order = epoch_order(key_now, self.labels, self.count, self.quota)
      for first in range(step, total, steps):
        block = _copy(self, order, first, steps=steps, size=schedule.batch_size)
        yield block, min(first + steps, total)
      step = 0


@functools.partial(jax.jit, static_argnames=("steps", "size"))
def _copy(pool, order, first, *, steps, size):
  """The block of so many steps, from the step `first` on."""
  # The last batch wraps around: every batch is full and every image is seen.
  at = first * size + jnp.arange(steps * size)
  rows = order[at % pool.count].reshape(steps, size)
  images = mesh.take_batches(pool.images, rows)
  return Block(images, mesh.replicate(pool.labels[rows]), jnp.int32(first))


def make_pool(
  images: Images,
  labels: Int[np.ndarray, " n"],
  capacity: int,
  quota: Int[np.ndarray, " classes"] | None = None,
) -> Pool:
  """Moves images to the device once, padded to `capacity`.

  Several devices have a share of the images each.

  >>> images, labels = np.ones((3, 8, 8, 3), np.uint8), np.arange(3)
  >>> make_pool(images, labels, capacity=5).images.shape
  (5, 8, 8, 3)
  """
  if not 0 < len(images) <= capacity:
    raise ValueError(f"{len(images)} images for a pool of {capacity}")
  return Pool(
    mesh.put_sharded(images, mesh.round_up(capacity)),
    mesh.put_replicated(np.pad(np.int32(labels), (0, capacity - len(labels)))),
    jnp.int32(len(images)),
    None if quota is None else mesh.put_replicated(quota),
  )
