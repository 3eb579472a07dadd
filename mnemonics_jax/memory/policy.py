"""How much may be kept: of every class or of all together, images or bytes."""

from collections.abc import Sequence
import dataclasses
import numbers
import re

import numpy as np

from mnemonics_jax.data.images import Images, read
from mnemonics_jax.errors import UserError
from mnemonics_jax.memory.codecs import Codec

# Of how many images codes are measured; and how many times as many images as
# would fit if all were like them have room: codes of some classes are smaller.
_MEASURED, _MORE = 512, 1.5


@dataclasses.dataclass(frozen=True)
class PerClass:
  """A fixed number of exemplars for every class (the paper's main tables).

  >>> PerClass(20).allowance(classes_seen=100)
  20

  Attributes:
    images: exemplars of each class.
  """

  images: int = 20

  def __post_init__(self):
    _check_budget(self, self.images)

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    del classes_seen
    return self.images

  def bytes_allowance(self, classes_seen: int, shared: int = 0) -> None:
    """However many bytes they take."""
    del classes_seen, shared

  def __str__(self) -> str:
    return f"per_class:{self.images}"


@dataclasses.dataclass(frozen=True)
class Total:
  """A fixed number of exemplars for all classes together, never exceeded.

  >>> Total(2000).allowance(classes_seen=60)
  33

  Attributes:
    images: exemplars of all classes.
  """

  images: int = 2000

  def __post_init__(self):
    _check_budget(self, self.images)

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    return self.images // classes_seen

  def bytes_allowance(self, classes_seen: int, shared: int = 0) -> None:
    """However many bytes they take."""
    del classes_seen, shared

  def __str__(self) -> str:
    return f"total:{self.images}"


@dataclasses.dataclass(frozen=True)
class PerClassBytes:
  """As many exemplars of every class as fit in so many bytes.

  >>> policy = PerClassBytes(61440, images=250)
  >>> policy.allowance(classes_seen=100), policy.bytes_allowance(100)
  (250, 61440)

  Attributes:
    bytes: of the codes of a class.
    images: never more of a class; `fit` finds it. Shapes follow from it.
    size: bytes of the largest image that `fit` has measured.
  """

  bytes: int
  images: int | None = None
  size: int | None = None

  def __post_init__(self):
    _check_budget(self, self.bytes)

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    del classes_seen
    return _fitted(self)

  def bytes_allowance(self, classes_seen: int, shared: int = 0) -> int:
    """Bytes that their codes may take, without the few that all share."""
    del classes_seen, shared
    return self.bytes

  def __str__(self) -> str:
    return f"per_class_bytes:{self.bytes}"


@dataclasses.dataclass(frozen=True)
class TotalBytes:
  """So many bytes for the exemplars of all classes, never exceeded.

  >>> policy = TotalBytes(614400, images=2500)
  >>> policy.allowance(classes_seen=10), policy.bytes_allowance(10)
  (250, 61440)

  Attributes:
    bytes: of all codes together.
    images: never more of all classes; `fit` finds it. Shapes follow from it.
    size: bytes of the largest image that `fit` has measured.
  """

  bytes: int
  images: int | None = None
  size: int | None = None

  def __post_init__(self):
    _check_budget(self, self.bytes)

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    return _fitted(self) // classes_seen

  def bytes_allowance(self, classes_seen: int, shared: int = 0) -> int:
    """Bytes that their codes may take, beside those that all share."""
    return max(self.bytes - shared, 0) // classes_seen

  def __str__(self) -> str:
    return f"total_bytes:{self.bytes}"


MemoryPolicy = PerClass | Total | PerClassBytes | TotalBytes

_KINDS = {
  "per_class": PerClass,
  "total": Total,
  "per_class_bytes": PerClassBytes,
  "total_bytes": TotalBytes,
}


def _check_budget(policy, budget):
  if not isinstance(budget, numbers.Integral) or budget < 1:
    kind = str(policy).split(":")[0]
    raise UserError(
      "memory",
      f"`memory={policy}` cannot be used",
      f"use {kind}:1 or a larger whole number",
    )


def _fitted(policy):
  if policy.images is None:
    raise UserError(
      "memory",
      f"how many images fit in `memory={policy}` is not known",
      "use what memory.fit makes of it and some of the images",
    )
  return policy.images


def parse(text: str | MemoryPolicy) -> MemoryPolicy:
  """Reads what `str` makes of a policy; a policy itself passes.

  >>> parse("total:2000"), parse("per_class_bytes:61440")
  (Total(images=2000), PerClassBytes(bytes=61440, images=None, size=None))
  """
  if not isinstance(text, str):
    return text
  parts = re.fullmatch(rf"({'|'.join(_KINDS)}):(-?[0-9]{{1,12}})", text)
  if parts is None:
    raise UserError(
      "memory",
      f"`memory={text}` is not a memory policy",
      "use per_class:N (N images of every class), total:N (N images"
      " altogether), per_class_bytes:N or total_bytes:N",
    )
  return _KINDS[parts[1]](int(parts[2]))


def fit(policy: MemoryPolicy, codec: Codec, images: Images) -> MemoryPolicy:
  """The policy, with a number of images if it has none, for images like these.

  >>> from mnemonics_jax.memory.codecs import Raw
  >>> fit(PerClassBytes(61440), Raw(), np.zeros((1, 32, 32, 3), np.uint8))
  PerClassBytes(bytes=61440, images=20, size=3072)
  >>> fit(PerClass(5), Raw(), np.zeros((1, 32, 32, 3), np.uint8))
  PerClass(images=5)

  Args:
    policy: a budget.
    codec: how images are kept.
    images: some of them, such as those of phase 0.
  """
  if policy.images is not None:
    return policy
  rows = np.linspace(0, len(images) - 1, min(len(images), _MEASURED))
  sizes = codec.encode(read(images, rows.astype(int))).sizes
  if policy.bytes < sizes.mean():
    raise UserError(
      "memory",
      f"`memory={policy}` does not hold one image, which takes about"
      f" {sizes.mean():.0f} bytes",
      "use more bytes or another `codec`",
    )
  more = 1 if codec.exact else _MORE
  return dataclasses.replace(
    policy,
    images=int(more * policy.bytes / sizes.mean()),
    size=int(sizes.max()),
  )


def certain(policy: MemoryPolicy, classes_seen: int, shared: int = 0) -> int:
  """Exemplars of a class that fit, if no code is larger than those measured.

  >>> certain(Total(100), 10)
  10
  >>> certain(TotalBytes(9000, images=30, size=400), 10)  # Shapes have room for 3.
  2

  Args:
    policy: the budget.
    classes_seen: how many classes share it.
    shared: bytes that all codes have in common.
  """
  in_bytes = isinstance(policy, PerClassBytes | TotalBytes)
  if not in_bytes or policy.size is None:
    return policy.allowance(classes_seen)
  return policy.bytes_allowance(classes_seen, shared) // policy.size


def check(
  policy: MemoryPolicy,
  classes_per_phase: Sequence[int],
  smallest_class: int | None,
  shared: int = 0,
) -> None:
  """Refuses budgets that cannot be met on this data set.

  >>> check(PerClass(20), classes_per_phase=(5, 1), smallest_class=500)
  >>> check(Total(5), classes_per_phase=(5, 1), smallest_class=500)
  Traceback (most recent call last):
  mnemonics_jax.errors.UserError: `memory=total:5` is smaller than the number of classes; 6 classes need at least total:6.

  Args:
    policy: the budget.
    classes_per_phase: how many classes each phase brings.
    smallest_class: training images of the class that has fewest; None if a class
      may have fewer than it is allowed to keep.
    shared: bytes that all codes have in common.
  """
  classes = sum(classes_per_phase)
  in_bytes = isinstance(policy, PerClassBytes | TotalBytes)
  left = policy.allowance(classes)
  if smallest_class is not None:  # A learner sees how large its codes are.
    left = certain(policy, classes, shared)
  if left < 1:
    if in_bytes:
      raise UserError(
        "memory",
        f"`memory={policy}` does not hold an image of each of {classes} classes",
        "use more bytes or another `codec`",
      )
    raise UserError(
      "memory",
      f"`memory={policy}` is smaller than the number of classes",
      f"{classes} classes need at least total:{classes}",
    )
  if smallest_class is None or in_bytes:  # Of a small class, all are kept.
    return
  if policy.allowance(classes) > smallest_class:
    kind, per_class = str(policy).split(":")[0], policy.allowance(classes)
    most = smallest_class * (classes if kind == "total" else 1)
    raise UserError(
      "memory",
      f"`memory={policy}` asks for {per_class} exemplars per class, but the"
      f" smallest class has {smallest_class} training images",
      f"use {kind}:{most} or less",
    )


def slots(
  policy: MemoryPolicy, classes_per_phase: Sequence[int], largest_class: int
) -> int:
  """The most exemplars of a class that there may be in the whole run.

  >>> slots(Total(2000), (50, 10, 10), largest_class=500)
  40
  """
  return min(policy.allowance(classes_per_phase[0]), largest_class)


def kept(policy: MemoryPolicy, classes_seen: int, largest_class: int) -> int:
  """The most exemplars there may be once `classes_seen` are known.

  >>> kept(Total(2000), 60, largest_class=500)
  1980
  """
  if not classes_seen:
    return 0
  return classes_seen * min(policy.allowance(classes_seen), largest_class)
