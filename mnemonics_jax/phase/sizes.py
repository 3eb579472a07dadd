"""Sizes of arrays: the same for a whole run, or for many phases of a learner."""

import itertools
from typing import NamedTuple

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.memory import MemoryPolicy


class Sizes(NamedTuple):
  """Sizes that no phase exceeds: shapes stay the same for the whole run.

  >>> from mnemonics_jax.memory import PerClass
  >>> shape = StreamShape((40,) * 10, (5, 1, 1, 1, 1, 1), image_shape=(8, 8, 3))
  >>> sizes = derive(shape, PerClass(20))
  >>> sizes.pool, sizes.old_exemplars  # 40 new images, 20 of each of 9 classes.
  (220, 180)

  Attributes:
    pool: images that a phase trains on.
    later_pool: the same after phase 0, whose pool is often the largest.
    class_images: training images of a class.
    class_exemplars: exemplars of a class.
    new_exemplars: exemplars of the classes that arrive after phase 0, together.
    old_exemplars: exemplars that are old, together.
  """

  pool: int
  later_pool: int
  class_images: int
  class_exemplars: int
  new_exemplars: int
  old_exemplars: int


class OpenShape(NamedTuple):
  """One phase of a learner that does not know which phases will follow.

  Sizes are rounded up, so that many small phases share a few programs.

  >>> from mnemonics_jax.memory import PerClass
  >>> shape = OpenShape((5, 1), 8, 100, 100, 50, image_shape=(8, 8, 3))
  >>> derive(shape, PerClass(10)).pool  # 150 images.
  192

  Attributes:
    classes_per_phase: of the phases so far, this one included.
    classes: rows of the head, seen or not.
    images: training images of the new classes.
    largest_class: training images of the largest of them.
    exemplars: old ones.
    image_shape: height, width and channels.
  """

  classes_per_phase: tuple[int, ...]
  classes: int
  images: int
  largest_class: int
  exemplars: int
  image_shape: tuple[int, int, int]

  @property
  def phases(self) -> int:
    """Rows of a mask over phases, seen or not."""
    return round_up(len(self.classes_per_phase))

  @property
  def smallest_class(self) -> None:
    """Of a class with too few images, all are kept."""
    return None

  @property
  def joint(self) -> bool:
    """It never sees the training data of earlier phases."""
    return False


def derive(
  shape: StreamShape | OpenShape, policy: MemoryPolicy, imitates: bool = False
) -> Sizes:
  """The sizes that these data and this memory lead to.

  Args:
    shape: of the data.
    policy: what may be kept of them.
    imitates: whether a phase also trains as the next one would: on images of its
      own classes, as many as come next, and on all that it keeps.
  """
  if isinstance(shape, OpenShape):
    return _of_phase(shape, policy, imitates)
  images, per_phase = shape.class_sizes, shape.classes_per_phase
  largest = max(images)
  kept = lambda seen: memory_lib.kept(policy, seen, largest)
  borders = itertools.pairwise(itertools.accumulate(per_phase, initial=0))
  phases = list(borders)
  pools = [sum(images[start:stop]) + kept(start) for start, stop in phases]
  if imitates:
    pools += [
      sum(images[start : min(start + coming - stop, stop)]) + kept(stop)
      for (start, stop), (_, coming) in itertools.pairwise(phases)
    ]
  new = [kept(stop) // stop * (stop - start) for start, stop in phases[1:]]
  return Sizes(
    pool=sum(images) if shape.joint else max(pools),
    later_pool=max(pools[1:], default=0),
    class_images=largest,
    class_exemplars=memory_lib.slots(policy, per_phase, largest),
    new_exemplars=max(new, default=0),
    old_exemplars=max(kept(start) for start, _ in phases),
  )


def _of_phase(shape, policy, imitates):
  allowance = policy.allowance(sum(shape.classes_per_phase))
  per_class = min(allowance, shape.largest_class)
  new = shape.classes_per_phase[-1] * per_class
  pool = round_up(shape.images + shape.exemplars + (new if imitates else 0))
  return Sizes(
    pool=pool,
    later_pool=pool,
    class_images=round_up(shape.largest_class),
    class_exemplars=per_class,
    new_exemplars=round_up(new),
    old_exemplars=round_up(shape.exemplars),
  )


def round_up(count: int, least: int = 8) -> int:
  """The next of 8, 12, 16, 24, 32, 48...: at most half of it is padding.

  >>> [round_up(n) for n in (1, 8, 9, 100, 129)]
  [8, 8, 12, 128, 192]
  """
  size = least
  while size < count:
    size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
  return size
