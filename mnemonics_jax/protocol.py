"""The incremental protocol: class order, phase split, metrics.

NumPy only. Everything here is a pure function of its arguments; nothing is
trained.
"""

from collections.abc import Sequence
import itertools

from jaxtyping import Float, Int
import numpy as np

from mnemonics_jax.errors import UserError, check_count

Confusion = Int[np.ndarray, "seen seen"]


def class_order(num_classes: int, seed: int = 1993) -> np.ndarray:
  """The order in which classes arrive: legacy NumPy's shuffle of `arange`.

  >>> class_order(100)[:5].tolist()  # Of CIFAR-100 in most papers.
  [68, 56, 78, 8, 23]
  """
  order = np.arange(num_classes)
  np.random.RandomState(seed).shuffle(order)
  return order


def class_subset(num_classes: int, size: int, seed: int = 1993) -> np.ndarray:
  """ImageNet-Subset: `size` of the sorted classes, without replacement.

  >>> class_subset(1000, 3).tolist()
  [54, 7, 894]
  """
  return np.random.RandomState(seed).choice(num_classes, size, replace=False)


def split_phases(
  num_classes: int, phases: int, base_classes: int | None = None
) -> tuple[int, ...]:
  """How many classes each phase brings.

  Args:
    num_classes: all classes of the data set.
    phases: N, the number of incremental phases after phase 0. With 0 the
      classes that are not phase 0's are left out.
    base_classes: classes of phase 0; None means half of them. With 0 there is
      no base phase: the first of the N phases is phase 0.

  Returns:
    Classes per phase, as even as possible (earlier phases take the remainder).

  >>> split_phases(100, 5)
  (50, 10, 10, 10, 10, 10)
  >>> split_phases(100, 0)
  (50,)
  """
  base = num_classes // 2 if base_classes is None else base_classes
  check_count("base_classes", base, most=num_classes)
  check_count("phases", phases, least=0 if base else 1)
  if not phases:
    return (base,)
  rest = num_classes - base
  if not rest:
    raise UserError(
      "base_classes",
      f"`base_classes={base}` leaves no class for `phases={phases}`",
      f"use `base_classes={num_classes - 1}` or fewer",
    )
  if phases > rest:
    raise UserError(
      "phases",
      f"`phases={phases}` would leave phases without classes: only {rest} of"
      f" {num_classes} classes remain after `base_classes={base}`",
      f"use `phases={rest}` or fewer, or fewer `base_classes`",
    )
  even, extra = divmod(rest, phases)
  increments = tuple(even + (i < extra) for i in range(phases))
  return ((base,) if base else ()) + increments


def accuracy(
  confusion: Confusion, classes: slice | np.ndarray = slice(None)
) -> float:
  """Top-1 accuracy over the test images of `classes` (A_i with all of them).

  >>> confusion = np.array([[8, 2], [5, 5]])  # Rows are the true classes.
  >>> accuracy(confusion)
  0.65
  >>> accuracy(confusion, slice(0, 1))
  0.8
  """
  rows = confusion[classes]
  total = rows.sum()
  hits = np.diagonal(confusion)[classes].sum()
  return float(hits / total) if total else float("nan")


def group_accuracies(
  confusion: Confusion, classes_per_phase: Sequence[int]
) -> list[float]:
  """Accuracy on the classes of each phase that has been learned so far.

  >>> confusion = np.array([[8, 2, 0], [4, 6, 0], [9, 0, 1]])
  >>> group_accuracies(confusion, classes_per_phase=(2, 1, 1))  # The last: later.
  [0.7, 0.1]
  """
  borders = np.concatenate([[0], np.cumsum(classes_per_phase)])
  return [
    accuracy(confusion, slice(start, stop))
    for start, stop in itertools.pairwise(borders)
    if stop <= len(confusion)
  ]


def average_accuracy(accuracies: Sequence[float]) -> float:
  """Plain mean of A_0..A_N; phase 0 counts.

  >>> average_accuracy([0.75, 0.5, 0.25])
  0.5
  """
  return float(np.mean(accuracies))


def forgetting(base_accuracies: Sequence[float]) -> float:
  """F = A_0^Z − A_N^Z, Z the test images of phase-0 classes.

  Positive when accuracy falls.

  >>> forgetting([0.75, 0.5, 0.25])
  0.5
  """
  return float(base_accuracies[0] - base_accuracies[-1])


def confidence_interval(
  values: Float[np.ndarray, " n"] | Sequence[float],
) -> tuple[float, float | None]:
  """Mean and half-width of its 95 % interval (Student's t; None for n = 1).

  >>> mean, half_width = confidence_interval([0.5, 0.75])
  >>> mean, round(half_width, 3)  # 12.706 · 0.125: two seeds say little.
  (0.625, 1.588)
  >>> confidence_interval([0.5])
  (0.5, None)
  """
  from scipy import stats  # Slow to import, and needed at the end of a run.

  values = np.asarray(values, np.float64)
  mean = float(values.mean())
  if len(values) < 2:
    return mean, None
  sem = values.std(ddof=1) / np.sqrt(len(values))
  return mean, float(stats.t.ppf(0.975, len(values) - 1) * sem)
