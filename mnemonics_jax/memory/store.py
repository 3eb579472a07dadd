"""The exemplar memory: a grid of uint8 slots, [classes, slots, h, w, c].

It lives on the host between phases; stages that need exemplars take `flat`.
"""

from collections.abc import Callable, Mapping

from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax.types import Memory


def empty(classes: int, slots: int, image_shape: tuple[int, ...]) -> Memory:
  """Memory for `slots` images of each of `classes`, with nothing in it.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> memory.images.shape, memory.counts.tolist()
  ((2, 3, 8, 8, 1), [0, 0])
  """
  images = np.zeros((classes, slots, *image_shape), np.uint8)
  return Memory(images, np.zeros(classes, np.int32))


def insert(
  memory: Memory, label: int, images: UInt8[np.ndarray, "n h w c"]
) -> Memory:
  """Memory in which class `label` holds exactly `images`.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> insert(memory, 1, np.ones((2, 8, 8, 1), np.uint8)).counts.tolist()
  [0, 2]
  """
  return insert_many(memory, {label: images})


def insert_many(
  memory: Memory, images_by_label: Mapping[int, UInt8[np.ndarray, "_ h w c"]]
) -> Memory:
  """Memory in which each of these classes holds exactly its images.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> image = np.ones((1, 8, 8, 1), np.uint8)
  >>> insert_many(memory, {0: image, 1: image}).counts.tolist()
  [1, 1]
  """
  slots = memory.images.shape[1]
  grid, counts = memory.images.copy(), memory.counts.copy()
  for label, images in images_by_label.items():
    if len(images) > slots:
      raise ValueError(f"{len(images)} images do not fit in {slots} slots")
    grid[label] = 0
    grid[label, : len(images)] = images
    counts[label] = len(images)
  return Memory(grid, counts)


def store(
  memory: Memory,
  images: UInt8[np.ndarray, "n h w c"],
  labels: Int[np.ndarray, " n"],
) -> Memory:
  """Memory in which each class of `labels` holds exactly its images.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> images = np.ones((4, 8, 8, 1), np.uint8)
  >>> store(memory, images, np.array([0, 1, 1, 1])).counts.tolist()
  [1, 3]
  """
  return insert_many(
    memory,
    {int(label): images[labels == label] for label in np.unique(labels)},
  )


def discard(
  rng: np.random.Generator | None,
  memory: Memory,
  allowance: int,
  apart: Callable[[int], int] = lambda count: 0,
) -> Memory:
  """Drops images from every class that has more than `allowance`.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> memory = insert(memory, 0, np.ones((3, 8, 8, 1), np.uint8))
  >>> discard(np.random.default_rng(0), memory, allowance=2).counts.tolist()
  [2, 0]

  Args:
    rng: decides which images stay; None keeps the first ones, which are the best
      where herding has chosen them.
    memory: what there is.
    allowance: images that a class may keep.
    apart: of so many images of a class, how many of the first shrink among
      themselves.
  """
  kept = {}
  for label in map(int, np.flatnonzero(memory.counts > allowance)):
    count = int(memory.counts[label])
    first, others = np.split(np.arange(count), [apart(count)])
    if rng is not None:
      others = rng.permutation(others)
    first = first[: apart(allowance)]
    others = np.sort(others[: allowance - len(first)])
    kept[label] = memory.images[label, np.concatenate([first, others])]
  return insert_many(memory, kept) if kept else memory


def flat(
  memory: Memory,
) -> tuple[UInt8[np.ndarray, "n h w c"], Int[np.ndarray, " n"]]:
  """All exemplars in class order, with their labels.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> images, labels = flat(insert(memory, 1, np.ones((2, 8, 8, 1), np.uint8)))
  >>> images.shape, labels.tolist()
  ((2, 8, 8, 1), [1, 1])
  """
  filled = np.arange(memory.images.shape[1]) < memory.counts[:, None]
  labels = np.repeat(np.arange(len(memory.counts)), memory.counts)
  return memory.images[filled], labels.astype(np.int32)


def replace(memory: Memory, images: UInt8[np.ndarray, "n h w c"]) -> Memory:
  """Memory whose exemplars, in the order of `flat`, are `images`.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> memory = insert(memory, 1, np.ones((2, 8, 8, 1), np.uint8))
  >>> images, _ = flat(memory)
  >>> replace(memory, 9 * images).images[1, :, 0, 0, 0].tolist()
  [9, 9, 0]
  """
  filled = np.arange(memory.images.shape[1]) < memory.counts[:, None]
  grid = memory.images.copy()
  grid[filled] = images
  return memory._replace(images=grid)


def size_bytes(memory: Memory) -> int:
  """Bytes of the exemplars themselves, without padding.

  >>> memory = empty(classes=2, slots=3, image_shape=(8, 8, 1))
  >>> size_bytes(insert(memory, 1, np.ones((2, 8, 8, 1), np.uint8)))
  128
  """
  return int(memory.counts.sum()) * int(np.prod(memory.images.shape[2:]))
