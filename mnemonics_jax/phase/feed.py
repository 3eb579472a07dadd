"""What training draws from: images on the device, or images that stream to it.

Both give the same blocks. Where images are is a matter of memory: a `Pool` holds
all of them, `Streamed` those of a few steps.
"""

from collections.abc import Generator
import dataclasses
import functools
import math
from typing import NamedTuple, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Int
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax.data import images as images_lib
from mnemonics_jax.data.images import Images
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import mesh, processes
from mnemonics_jax.parallel.prefetch import read_ahead
from mnemonics_jax.phase.block import Block, block_steps
from mnemonics_jax.phase.order import epoch_order
from mnemonics_jax.phase.pool import make_pool
from mnemonics_jax.phase.schedule import Schedule

# Part of a device that a pool may take: activations need the rest.
_POOL_SHARE = 1 / 4


@runtime_checkable
class Feed(Protocol):
  """What `fit` draws from.

  >>> pool = make_pool(np.ones((5, 8, 8, 3), np.uint8), np.zeros(5, int), 5)
  >>> feed: Feed = pool
  >>> blocks = feed.blocks(jax.random.key(0), Schedule(epochs=2, batch_size=2))
  >>> [stop for _, stop in blocks]  # The three steps of each epoch.
  [3, 3]
  """

  @property
  def draws(self) -> int:
    """Images that an epoch draws."""
    ...

  def blocks(
    self, key: Array, schedule: Schedule, epoch: int = 0, step: int = 0
  ) -> Generator[tuple[Block, int], None, None]:
    """The batches of all steps, up to the end of the last epoch.

    Args:
      key: into which epochs fold their number.
      schedule: batch size, and how many epochs there are.
      epoch: where to begin.
      step: where to begin in it.

    Yields:
      A block, and the number of the step after its last.
    """
    ...


class _Part(NamedTuple):
  """Steps [first, stop) of an epoch, and the rows that they draw; -1 is none.

  A row that is drawn again has a number of its own, see `_numbered`.
  """

  epoch: int
  first: int
  stop: int
  rows: Int[np.ndarray, "steps batch"]


@dataclasses.dataclass(frozen=True)
class Streamed:
  """Images that stay on the host or on a disk; a `Feed`.

  A thread reads the batches of the next steps, and moves them to the device,
  while those before train. A process reads what its own devices need.

  >>> images, labels = np.ones((5, 8, 8, 3), np.uint8), np.zeros(5, np.int32)
  >>> feed = Streamed(images, labels, capacity=5)
  >>> blocks = feed.blocks(jax.random.key(0), Schedule(epochs=1, batch_size=2))
  >>> [(block.images.shape, stop) for block, stop in blocks]
  [((3, 2, 8, 8, 3), 3)]

  Attributes:
    images: all of them.
    labels: their classes.
    capacity: rows of the pool that would hold them.
    quota: draws of each class in an epoch, None for every image once.
  """

  images: Images
  labels: Int[np.ndarray, " n"]
  capacity: int
  quota: Int[np.ndarray, " classes"] | None = None

  @property
  def draws(self) -> int:
    """Images that an epoch draws."""
    return len(self.labels)

  def blocks(
    self, key: Array, schedule: Schedule, epoch: int = 0, step: int = 0
  ) -> Generator[tuple[Block, int], None, None]:
    """Images as they are read; see `Feed.blocks`."""
    seed = int(np.asarray(jax.random.key_data(key)).view(np.uint64)[0])
    read = functools.partial(self._read, seed)
    return read_ahead(read, self._parts(key, schedule, epoch, step))

  def _parts(self, key, schedule, epoch, step):
    """What each block will have; computed where computations have an order."""
    size, total = schedule.batch_size, schedule.steps(self.draws)
    steps = block_steps(schedule, self.capacity, self.images.shape[1:])
    padding = self.capacity - len(self.labels)
    labels = np.pad(np.int32(self.labels), (0, padding))
    for number in range(epoch, schedule.epochs):
      key_now = jax.random.fold_in(key, number)
      order = np.asarray(epoch_order(key_now, labels, self.draws, self.quota))
      order = _numbered(order[: self.draws], self.draws)
      for first in range(step, total, steps):
        stop = min(first + steps, total)
        rows = np.full((steps, size), -1)
        at = np.arange(first * size, stop * size) % self.draws
        rows[: stop - first] = order[at].reshape(-1, size)
        yield _Part(number, first, stop, rows)
      step = 0

  def _read(self, seed, part):
    view = lambda draws: images_lib.training_view(
      self.images, draws % self.draws, seed, part.epoch, draws
    )
    labels = np.where(part.rows >= 0, self.labels[part.rows % self.draws], 0)
    block = Block(
      mesh.put_batches(view, part.rows, self.images.shape[1:]),
      mesh.put_replicated(labels.astype(np.int32)),
      mesh.put_replicated(np.array(part.first, np.int32)),
    )
    return block, part.stop


def _numbered(
  order: Int[np.ndarray, " draws"], rows: int
) -> Int[np.ndarray, " draws"]:
  """A number for every draw: the row, and `rows` more for each time before."""
  by_row = np.argsort(order, kind="stable")
  same = order[by_row]
  first = np.searchsorted(same, same)  # Where each row begins.
  numbers = np.empty_like(order)
  numbers[by_row] = same + rows * (np.arange(len(order)) - first)
  return numbers


def make_feed(
  images: Images,
  labels: Int[np.ndarray, " n"],
  capacity: int,
  stream: str = "auto",
  quota: Int[np.ndarray, " classes"] | None = None,
) -> Feed:
  """A pool if a device has room for it, otherwise images that stream to it.

  >>> images, labels = np.ones((5, 8, 8, 3), np.uint8), np.zeros(5, np.int32)
  >>> type(make_feed(images, labels, capacity=5)).__name__
  'Pool'

  Args:
    images: all that is trained on.
    labels: their classes.
    capacity: images that this may be in another phase.
    stream: `always` and `never` decide it; `auto` looks at the sizes.
    quota: draws of each class in an epoch, None for every image once.
  """
  if _streams(images, capacity, stream):
    return Streamed(images, labels, capacity, quota)
  return make_pool(images, labels, capacity, quota)


def _streams(images, capacity, stream):
  check_stream(stream, images_lib.varies(images))
  if images_lib.varies(images):
    return True
  if stream != "auto":
    return stream == "always"
  share = capacity * math.prod(images.shape[1:]) / mesh.device_count()
  # Machines may differ; they decide together.
  return bool(processes.all_max(share > _POOL_SHARE * bilevel.device_bytes()))


def check_stream(stream: str, varies: bool) -> None:
  """Refuses a pool of images that every epoch sees differently.

  Args:
    stream: field of the configuration.
    varies: whether they are such images.
  """
  if varies and stream == "never":
    raise UserError(
      "stream",
      "`stream=never` would show the same part of each image in every epoch",
      "use `stream=auto`",
    )
