"""The exemplar memory: codes of images, class after class.

It lives on the host between phases; stages that need exemplars take `flat`.
"""

from collections.abc import Callable, Iterable
import dataclasses
import functools

from jaxtyping import Int, UInt8
import numpy as np

from mnemonics_jax.errors import UserError
from mnemonics_jax.memory.codecs import Codec, Codes, Raw


@dataclasses.dataclass(frozen=True, eq=False)
class Memory:
  """The exemplars of old classes: codes of images, class after class.

  Attributes:
    codes: of all exemplars, as `codec` makes them.
    counts: number of exemplars of each class.
    image_shape: height, width and channels.
    codec: how images are stored.
  """

  codes: Codes
  counts: Int[np.ndarray, " classes"]
  image_shape: tuple[int, int, int]
  codec: Codec

  def __eq__(self, other: object) -> bool:
    if not isinstance(other, Memory):
      return NotImplemented
    arrays = lambda memory: (*memory.codes, memory.counts)
    return (self.codec, self.image_shape) == (
      other.codec,
      other.image_shape,
    ) and all(map(np.array_equal, arrays(self), arrays(other)))

  @functools.cached_property
  def images(self) -> UInt8[np.ndarray, "n h w c"]:
    """All exemplars, decoded once."""
    return self.codec.decode(self.codes, self.image_shape)

  @property
  def labels(self) -> Int[np.ndarray, " n"]:
    """The class of each."""
    return np.repeat(np.arange(len(self.counts)), self.counts).astype(np.int32)

  def of_class(self, label: int) -> Codes:
    """The codes of a class."""
    start = int(self.counts[:label].sum())
    rows = slice(start, start + int(self.counts[label]))
    first = int(self.codes.sizes[:start].sum())
    size = int(self.codes.sizes[rows].sum())
    return Codes(self.codes.data[first : first + size], self.codes.sizes[rows])


def empty(
  classes: int, image_shape: tuple[int, int, int], codec: Codec = Raw()
) -> Memory:
  """A memory for this many classes, without exemplars."""
  nothing = Codes(np.zeros(0, np.uint8), np.zeros(0, np.int64))
  return Memory(nothing, np.zeros(classes, np.int32), image_shape, codec)


def insert(
  memory: Memory, label: int, images: UInt8[np.ndarray, "n h w c"]
) -> Memory:
  """The memory in which class `label` holds exactly `images`."""
  return store(memory, images, np.full(len(images), label))


def store(
  memory: Memory,
  images: UInt8[np.ndarray, "n h w c"],
  labels: Int[np.ndarray, " n"],
) -> Memory:
  """The memory in which each class of `labels` holds exactly its images."""
  order = np.argsort(labels, kind="stable")
  new = Memory(
    memory.codec.encode(images[order]),
    np.bincount(labels, minlength=len(memory.counts)).astype(np.int32),
    memory.image_shape,
    memory.codec,
  )
  source = [new if count else memory for count in new.counts]
  return _assembled(memory, [s.of_class(c) for c, s in enumerate(source)])


def discard(
  rng: np.random.Generator | None,
  memory: Memory,
  allowance: int,
  apart: Callable[[int], int] = lambda count: 0,
  bytes_allowance: int | None = None,
) -> Memory:
  """Drops images from every class that has more than it may keep.

  Args:
    rng: draws the images that stay; None keeps the first ones, which are the best
      if herding chose them.
    memory: before.
    allowance: images that a class may keep.
    apart: maps a number of images of a class to how many of the first ones shrink
      among themselves.
    bytes_allowance: bytes that their codes may take; None for any number.
  """
  parts, same = [], True
  for label in range(len(memory.counts)):
    codes = memory.of_class(label)
    rows = staying(rng, codes.sizes, allowance, apart, bytes_allowance)
    if len(rows) < len(codes.sizes):
      one_by_one, same = codes.apart(), False
      data = np.concatenate([one_by_one[row] for row in rows])
      codes = Codes(data, codes.sizes[rows])
    parts.append(codes)
  return memory if same else _assembled(memory, parts)


def staying(
  rng: np.random.Generator | None,
  sizes: Int[np.ndarray, " n"],
  allowance: int,
  apart: Callable[[int], int] = lambda count: 0,
  bytes_allowance: int | None = None,
) -> Int[np.ndarray, " kept"]:
  """Rows of a class that stay; the arguments are those of `discard`.

  Args:
    rng: draws, or None.
    sizes: bytes of each code of the class.
    allowance: images.
    apart: how many of the first shrink among themselves.
    bytes_allowance: bytes.
  """
  count = len(sizes)
  fits = lambda rows: (
    len(rows) <= allowance
    and (bytes_allowance is None or sizes[rows].sum() <= bytes_allowance)
  )
  if fits(every := np.arange(count)):
    return every
  first, others = np.split(every, [apart(count)])
  if rng is not None:
    others = rng.permutation(others)

  def best(number):
    some = first[: apart(number)]
    return np.concatenate([some, np.sort(others[: number - len(some)])])

  # The rows that stay for a smaller number are among those for a larger one.
  for number in range(min(count, allowance), 0, -1):
    if fits(rows := best(number)):
      return rows
  raise UserError(
    "memory",
    f"an exemplar takes {sizes[best(1)].sum()} bytes, and a class has"
    f" {bytes_allowance}",
    "use more bytes or another `codec`",
  )


def _assembled(memory, parts: Iterable[Codes]) -> Memory:
  """The memory with these codes of its classes; copies each of them once."""
  data, sizes = zip(*parts, strict=True)
  counts = np.array([len(part) for part in sizes], np.int32)
  codes = Codes(np.concatenate(data), np.concatenate(sizes))
  return dataclasses.replace(memory, codes=codes, counts=counts)


def flat(
  memory: Memory,
) -> tuple[UInt8[np.ndarray, "n h w c"], Int[np.ndarray, " n"]]:
  """All exemplars in class order, with their labels."""
  return memory.images, memory.labels


def replace(memory: Memory, images: UInt8[np.ndarray, "n h w c"]) -> Memory:
  """The memory whose exemplars, in the order of `flat`, are `images`."""
  return dataclasses.replace(memory, codes=memory.codec.encode(images))


def size_bytes(memory: Memory) -> int:
  """Bytes of the exemplars; the header that all codes share counts once."""
  shared = memory.codec.shared(memory.image_shape)
  return memory.codes.data.size + (len(shared) if memory.counts.any() else 0)
