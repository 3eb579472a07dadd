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
import jax.numpy as jnp
from jaxtyping import Array, Int, UInt8
import numpy as np

from mnemonics_jax import bilevel
from mnemonics_jax.data import images as images_lib
from mnemonics_jax.data.images import Draws, Images, Pixels, Rows, Store, Stored
from mnemonics_jax.errors import UserError
from mnemonics_jax.memory import Codec, round_trip
from mnemonics_jax.parallel import mesh, processes
from mnemonics_jax.parallel.prefetch import read_ahead
from mnemonics_jax.phase.config import Schedule
from mnemonics_jax.phase.draws import epoch_order

BYTES = 2**26


class Block(NamedTuple):
  """The batches of consecutive steps of an epoch.

  Wherever images come from, these have the same shape: the same program trains
  on them, and gives the same bits.

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

  Args:
    schedule: batch size.
    capacity: images that an epoch may have in some phase.
    image_shape: height, width and channels.
  """
  step_bytes = schedule.batch_size * math.prod(image_shape)
  return max(1, min(BYTES // step_bytes, schedule.steps(capacity)))


class Pool(NamedTuple):
  """Training images on the device, padded to a capacity; a `Feed`.

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
  """
  if not 0 < len(images) <= capacity:
    raise ValueError(f"{len(images)} images for a pool of {capacity}")
  return Pool(
    mesh.put_sharded(images, mesh.round_up(capacity)),
    mesh.put_replicated(np.pad(np.int32(labels), (0, capacity - len(labels)))),
    jnp.int32(len(images)),
    None if quota is None else mesh.put_replicated(quota),
  )


# Part of a device that a pool may take: activations need the rest.
_POOL_SHARE = 1 / 4


@runtime_checkable
class Feed(Protocol):
  """What `fit` draws from."""

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


@dataclasses.dataclass(frozen=True, eq=False)
class _Coded:
  """A store whose images were coded and decoded; a `Store`."""

  store: Store
  codec: Codec

  @property
  def image_shape(self) -> tuple[int, int, int]:
    return self.store.image_shape

  @property
  def varies(self) -> bool:
    return self.store.varies

  def checksum(self, rows: Rows, start: int = 0) -> int:
    return self.store.checksum(rows, start)

  def read(self, rows: Rows, draws: Draws | None = None) -> Pixels:
    return round_trip(self.codec, self.store.read(rows, draws))


def as_kept(codec: Codec, images: Images) -> Images:
  """What is left of images when they are kept; stored ones are coded when read.

  Args:
    codec: how they would be kept.
    images: in memory or in a store.
  """
  if codec.exact:
    return images
  if isinstance(images, Stored):
    return Stored(_Coded(images.store, codec), images.rows)
  return round_trip(codec, images)
