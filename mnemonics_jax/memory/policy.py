"""How many exemplars may be kept: of every class, or of all together."""

from collections.abc import Sequence
import dataclasses
import re

from mnemonics_jax.errors import UserError


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
    if self.images < 1:
      raise UserError(
        "memory",
        f"`memory={self}` keeps nothing",
        "use per_class:1 or more",
      )

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    del classes_seen
    return self.images

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
    if self.images < 1:
      raise UserError(
        "memory", f"`memory={self}` keeps nothing", "use a positive budget"
      )

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    return self.images // classes_seen

  def __str__(self) -> str:
    return f"total:{self.images}"


MemoryPolicy = PerClass | Total


def parse(text: str) -> MemoryPolicy:
  """Reads what `str` makes of a policy.

  >>> parse("total:2000")
  Total(images=2000)
  """
  parts = re.fullmatch(r"(per_class|total):(-?[0-9]{1,9})", text)
  if parts is None:
    raise UserError(
      "memory",
      f"`memory={text}` is not a memory policy",
      "use per_class:N (N images of every class) or total:N (N images"
      " altogether)",
    )
  policy = {"per_class": PerClass, "total": Total}[parts[1]]
  return policy(int(parts[2]))


def check(
  policy: MemoryPolicy,
  classes_per_phase: Sequence[int],
  smallest_class: int | None,
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
  """
  classes = sum(classes_per_phase)
  if policy.allowance(classes) < 1:
    raise UserError(
      "memory",
      f"`memory={policy}` is smaller than the number of classes",
      f"{classes} classes need at least total:{classes}",
    )
  if smallest_class is None:
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
  """Image slots per class that suffice for the whole run.

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
