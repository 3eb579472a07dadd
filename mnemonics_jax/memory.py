"""The exemplar memory: a grid of uint8 slots, [classes, slots, h, w, c].

It lives on the host between phases; stages that need exemplars take `flat`.
"""

from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax.types import Memory


def empty(classes: int, slots: int, image_shape: tuple[int, ...]) -> Memory:
  images = np.zeros((classes, slots, *image_shape), np.uint8)
  return Memory(images, np.zeros(classes, np.int32))


def insert(
  memory: Memory, label: int, images: UInt8[np.ndarray, "n h w c"]
) -> Memory:
  """Memory in which class `label` holds exactly `images`."""
  slots = memory.images.shape[1]
  if len(images) > slots:
    raise ValueError(f"{len(images)} images do not fit in {slots} slots")
  grid, counts = memory.images.copy(), memory.counts.copy()
  grid[label] = 0
  grid[label, : len(images)] = images
  counts[label] = len(images)
  return Memory(grid, counts)


def discard(rng: np.random.Generator, memory: Memory, allowance: int) -> Memory:
  """Drops images at random from every class that has more than `allowance`."""
  for label in map(int, np.flatnonzero(memory.counts > allowance)):
    kept = np.sort(rng.permutation(memory.counts[label])[:allowance])
    memory = insert(memory, label, memory.images[label, kept])
  return memory


def flat(
  memory: Memory,
) -> tuple[UInt8[np.ndarray, "n h w c"], Int[np.ndarray, " n"]]:
  """All exemplars in class order, with their labels."""
  filled = np.arange(memory.images.shape[1]) < memory.counts[:, None]
  labels = np.repeat(np.arange(len(memory.counts)), memory.counts)
  return memory.images[filled], labels.astype(np.int32)


def replace(memory: Memory, images: UInt8[np.ndarray, "n h w c"]) -> Memory:
  """Memory whose exemplars, in the order of `flat`, are `images`."""
  filled = np.arange(memory.images.shape[1]) < memory.counts[:, None]
  grid = memory.images.copy()
  grid[filled] = images
  return memory._replace(images=grid)


def size_bytes(memory: Memory) -> int:
  """Bytes of the exemplars themselves, without padding."""
  return int(memory.counts.sum()) * int(np.prod(memory.images.shape[2:]))
