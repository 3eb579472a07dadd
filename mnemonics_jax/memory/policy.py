"""Memory budgets: for every class or for all together, in images or bytes."""

from collections.abc import Sequence
import dataclasses
import numbers
import re
from typing import ClassVar

import numpy as np

from mnemonics_jax.data.images import Images, read
from mnemonics_jax.errors import UserError
from mnemonics_jax.memory.codecs import Codec

_MEASURED = 512  # Images whose codes `fit` measures.
# Shapes have room for more images than fit on average, since some classes have
# smaller codes.
_MORE = 1.5


class _Policy:
  """What all budgets have in common.

  Attributes:
    kind: the text before the number.
    per_class: whether the number is for each class, not for all together.
    images: exemplars allowed; None in a budget of bytes that `fit` has not seen.
  """

  kind: ClassVar[str]
  per_class: ClassVar[bool]
  images: int | None

  def __post_init__(self):
    if not isinstance(self._budget, numbers.Integral) or self._budget < 1:
      raise UserError(
        "memory",
        f"`memory={self}` cannot be used",
        f"use {self.kind}:1 or a larger whole number",
      )

  @property
  def _budget(self):
    return self.images

  def allowance(self, classes_seen: int) -> int:
    """Exemplars that each of `classes_seen` classes may keep."""
    if self.images is None:
      raise UserError(
        "memory",
        f"how many images fit in `memory={self}` is not known",
        "use what memory.fit makes of it and some of the images",
      )
    return self.images if self.per_class else self.images // classes_seen

  def bytes_allowance(self, classes_seen: int, shared: int = 0) -> int | None:
    """Bytes that the codes of a class may take; None if only images count.

    Args:
      classes_seen: how many classes share the budget.
      shared: bytes that all codes have in common. They count once.
    """
    del classes_seen, shared
    return None

  def __str__(self) -> str:
    return f"{self.kind}:{self._budget}"


class _Bytes(_Policy):
  """A budget of bytes. Shapes follow from a number of images that `fit` finds."""

  bytes: int
  size: int | None

  @property
  def _budget(self):
    return self.bytes

  def bytes_allowance(self, classes_seen: int, shared: int = 0) -> int:
    if self.per_class:
      return self.bytes
    return max(self.bytes - shared, 0) // classes_seen


@dataclasses.dataclass(frozen=True)
class PerClass(_Policy):
  """A fixed number of exemplars for every class (the paper's main tables)."""

  kind = "per_class"
  per_class = True
  images: int = 20


@dataclasses.dataclass(frozen=True)
class Total(_Policy):
  """A fixed number of exemplars for all classes together, never exceeded."""

  kind = "total"
  per_class = False
  images: int = 2000


@dataclasses.dataclass(frozen=True)
class PerClassBytes(_Bytes):
  """As many exemplars of every class as fit in a number of bytes.

  Attributes:
    bytes: for the codes of a class.
    images: most exemplars of a class; `fit` finds it.
    size: bytes of the largest image that `fit` has measured.
  """

  kind = "per_class_bytes"
  per_class = True
  bytes: int
  images: int | None = None
  size: int | None = None


@dataclasses.dataclass(frozen=True)
class TotalBytes(_Bytes):
  """A number of bytes for the exemplars of all classes, never exceeded.

  Attributes:
    bytes: for all codes together.
    images: most exemplars of all classes; `fit` finds it.
    size: bytes of the largest image that `fit` has measured.
  """

  kind = "total_bytes"
  per_class = False
  bytes: int
  images: int | None = None
  size: int | None = None


MemoryPolicy = PerClass | Total | PerClassBytes | TotalBytes

_KINDS = {cls.kind: cls for cls in (PerClass, Total, PerClassBytes, TotalBytes)}


def parse(text: str | MemoryPolicy) -> MemoryPolicy:
  """Reads what `str` makes of a policy, such as `total:2000`; a policy passes."""
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
  """The policy, where a budget of bytes gets its number of images.

  Args:
    policy: a budget.
    codec: how images are stored.
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
  """Exemplars of a class that fit if no code is larger than those measured."""
  if not isinstance(policy, _Bytes) or policy.size is None:
    return policy.allowance(classes_seen)
  return policy.bytes_allowance(classes_seen, shared) // policy.size


def check(
  policy: MemoryPolicy,
  classes_per_phase: Sequence[int],
  smallest_class: int | None,
  shared: int = 0,
) -> None:
  """Refuses budgets that cannot be met on this data set.

  Args:
    policy: the budget.
    classes_per_phase: how many classes each phase brings.
    smallest_class: training images of the smallest class; None if a class may
      have fewer than it is allowed to keep.
    shared: bytes that all codes have in common.
  """
  classes = sum(classes_per_phase)
  in_bytes = isinstance(policy, _Bytes)
  left = policy.allowance(classes)
  if smallest_class is not None:  # A Learner finds out as it goes.
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
    per_class = policy.allowance(classes)
    most = smallest_class * (1 if policy.per_class else classes)
    raise UserError(
      "memory",
      f"`memory={policy}` asks for {per_class} exemplars per class, but the"
      f" smallest class has {smallest_class} training images",
      f"use {policy.kind}:{most} or less",
    )


def slots(
  policy: MemoryPolicy, classes_per_phase: Sequence[int], largest_class: int
) -> int:
  """The most exemplars of a class at any time of the run."""
  return min(policy.allowance(classes_per_phase[0]), largest_class)


def kept(policy: MemoryPolicy, classes_seen: int, largest_class: int) -> int:
  """The most exemplars there may be after `classes_seen` classes."""
  if not classes_seen:
    return 0
  return classes_seen * min(policy.allowance(classes_seen), largest_class)
