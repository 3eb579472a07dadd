"""The incremental protocol: class order, phase split, memory policy, metrics.

NumPy only. Everything here is a pure function of its arguments; nothing is
trained.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import re

from jaxtyping import Float, Int
import numpy as np

Confusion = Int[np.ndarray, "seen seen"]


class ProtocolError(ValueError):
  """A protocol that cannot be run; the message names the flag and the fix."""


def class_order(num_classes: int, seed: int = 1993) -> np.ndarray:
  """The order in which classes arrive: legacy NumPy's shuffle of `arange`."""
  order = np.arange(num_classes)
  np.random.RandomState(seed).shuffle(order)
  return order


def class_subset(num_classes: int, size: int, seed: int = 1993) -> np.ndarray:
  """ImageNet-Subset: `size` of the sorted classes, without replacement."""
  return np.random.RandomState(seed).choice(num_classes, size, replace=False)


def split_phases(
  num_classes: int, phases: int, base_classes: int | None = None
) -> tuple[int, ...]:
  """How many classes each phase brings.

  Args:
    num_classes: all classes of the data set.
    phases: N, the number of incremental phases after phase 0.
    base_classes: classes of phase 0; None means half of them. With 0 there is
      no base phase: the first of the N phases is phase 0.

  Returns:
    Classes per phase, as even as possible (earlier phases take the remainder).
  """
  base = num_classes // 2 if base_classes is None else base_classes
  if not 0 <= base <= num_classes:
    raise ProtocolError(
      f"--base_classes={base} must lie between 0 and the {num_classes} classes"
      " of the data set."
    )
  if phases < 1:
    raise ProtocolError(
      f"--phases={phases} brings nothing new; use --phases=1 or more."
    )
  rest = num_classes - base
  if not rest:
    raise ProtocolError(
      f"--base_classes={base} leaves no class for --phases={phases}; use"
      f" --base_classes={num_classes - 1} or fewer."
    )
  if phases > rest:
    raise ProtocolError(
      f"--phases={phases} would leave phases without classes: only {rest} of"
      f" {num_classes} classes remain after --base_classes={base}. Use"
      f" --phases={rest} or fewer, or fewer --base_classes."
    )
  even, extra = divmod(rest, phases)
  increments = tuple(even + (i < extra) for i in range(phases))
  return ((base,) if base else ()) + increments


@dataclasses.dataclass(frozen=True)
class PerClass:
  """A fixed number of exemplars for every class (the paper's main tables)."""

  images: int = 20

  def __post_init__(self):
    if self.images < 1:
      raise ProtocolError(
        f"--memory=per_class:{self.images} keeps nothing; use per_class:1 or"
        " more."
      )

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    del classes_seen
    return self.images

  def __str__(self):
    return f"per_class:{self.images}"


@dataclasses.dataclass(frozen=True)
class Total:
  """A fixed number of exemplars for all classes together, never exceeded."""

  images: int = 2000

  def __post_init__(self):
    if self.images < 1:
      raise ProtocolError(
        f"--memory=total:{self.images} keeps nothing; use a positive budget."
      )

  def allowance(self, classes_seen: int) -> int:
    """Exemplars every class may keep once `classes_seen` are known."""
    return self.images // classes_seen

  def __str__(self):
    return f"total:{self.images}"


MemoryPolicy = PerClass | Total


def parse_memory(text: str) -> MemoryPolicy:
  """Reads `per_class:20` or `total:2000`."""
  parts = re.fullmatch(r"(per_class|total):(-?[0-9]{1,9})", text)
  if parts is None:
    raise ProtocolError(
      f"--memory={text} is not a memory policy. Use per_class:N (N images of"
      " every class) or total:N (N images altogether)."
    )
  policy = {"per_class": PerClass, "total": Total}[parts[1]]
  return policy(int(parts[2]))


def check_memory(
  policy: MemoryPolicy, classes_per_phase: Sequence[int], smallest_class: int
) -> None:
  """Refuses budgets that cannot be met on this data set."""
  classes = sum(classes_per_phase)
  if policy.allowance(classes) < 1:
    raise ProtocolError(
      f"--memory={policy} is smaller than the number of classes: {classes}"
      f" classes need at least total:{classes}."
    )
  if policy.allowance(classes) > smallest_class:
    kind, per = str(policy).split(":")[0], policy.allowance(classes)
    most = smallest_class * (classes if kind == "total" else 1)
    raise ProtocolError(
      f"--memory={policy} asks for {per} exemplars per class, but the smallest"
      f" class has {smallest_class} training images. Use {kind}:{most} or less."
    )


def memory_slots(
  policy: MemoryPolicy, classes_per_phase: Sequence[int], largest_class: int
) -> int:
  """Image slots per class that suffice for the whole run."""
  return min(policy.allowance(classes_per_phase[0]), largest_class)


def kept(policy: MemoryPolicy, classes_seen: int, largest_class: int) -> int:
  """The most exemplars there may be once `classes_seen` are known."""
  if not classes_seen:
    return 0
  return classes_seen * min(policy.allowance(classes_seen), largest_class)


def accuracy(
  confusion: Confusion, classes: slice | np.ndarray = slice(None)
) -> float:
  """Top-1 accuracy over the test images of `classes` (A_i with all of them)."""
  rows = confusion[classes]
  total = rows.sum()
  hits = np.diagonal(confusion)[classes].sum()
  return float(hits / total) if total else float("nan")


def group_accuracies(
  confusion: Confusion, classes_per_phase: Sequence[int]
) -> list[float]:
  """Accuracy on the classes of each phase that has been learned so far."""
  borders = np.concatenate([[0], np.cumsum(classes_per_phase)])
  return [
    accuracy(confusion, slice(start, stop))
    for start, stop in itertools.pairwise(borders)
    if stop <= len(confusion)
  ]


def average_accuracy(accuracies: Sequence[float]) -> float:
  """Plain mean of A_0..A_N; phase 0 counts."""
  return float(np.mean(accuracies))


def forgetting(base_accuracies: Sequence[float]) -> float:
  """F = A_0^Z − A_N^Z, Z the test images of phase-0 classes.

  Positive when accuracy falls.
  """
  return float(base_accuracies[0] - base_accuracies[-1])


def confidence_interval(
  values: Float[np.ndarray, " n"] | Sequence[float],
) -> tuple[float, float | None]:
  """Mean and half-width of its 95 % interval (Student's t; None for n = 1)."""
  from scipy import stats  # Slow to import, and needed at the end of a run.

  values = np.asarray(values, np.float64)
  mean = float(values.mean())
  if len(values) < 2:
    return mean, None
  sem = values.std(ddof=1) / np.sqrt(len(values))
  return mean, float(stats.t.ppf(0.975, len(values) - 1) * sem)
