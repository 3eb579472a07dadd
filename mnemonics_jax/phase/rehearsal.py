"""How often exemplars are drawn, compared with new images and with each other.

An epoch always has as many draws as there are images to train on: what is drawn
more often comes in place of something else.
"""

import re

from jaxtyping import Int
import numpy as np

from mnemonics_jax.errors import UserError


def check(rehearsal: str) -> None:
  """Refuses what is no way to rehearse.

  >>> check("balanced"), check("4")
  (None, None)
  """
  if rehearsal in ("once", "balanced"):
    return
  if not (re.fullmatch(r"[0-9]{1,6}", rehearsal) and int(rehearsal) > 0):
    raise UserError(
      "rehearsal",
      f"`rehearsal={rehearsal}` is not known",
      "use once, balanced, or a whole number of times, such as 4",
    )


def quotas(
  rehearsal: str, labels: Int[np.ndarray, " n"], old: int, classes: int
) -> Int[np.ndarray, " classes"] | None:
  """How many draws of an epoch each class has; None for every image once.

  Two exemplars of class 0 and eight images of class 1, which is new:

  >>> labels = np.array([0, 0] + [1] * 8)
  >>> quotas("balanced", labels, old=1, classes=3).tolist()
  [5, 5, 0]
  >>> quotas("4", labels, old=1, classes=3).tolist()  # 4·2 and 8 of 16.
  [5, 5, 0]
  >>> quotas("once", labels, old=1, classes=3)

  Args:
    rehearsal: `once`; `balanced`, a class of exemplars as often as a new class;
      or how many times as often an exemplar is drawn as a new image.
    labels: classes of all that is trained on.
    old: how many classes have exemplars only.
    classes: of the model.
  """
  if rehearsal == "once" or not old:
    return None
  counts = np.bincount(labels, minlength=classes).astype(np.float64)
  is_old, there = np.arange(classes) < old, counts > 0
  weights = counts.copy()
  if rehearsal == "balanced":
    weights[is_old & there] = counts[~is_old & there].mean()
  else:
    weights[is_old] *= int(rehearsal)
  return _shares(weights, len(labels))


def equal(
  labels: Int[np.ndarray, " n"], classes: int
) -> Int[np.ndarray, " classes"] | None:
  """As many draws of an epoch for each class; None if each has as many images.

  >>> equal(np.array([0, 1, 1, 1]), classes=3).tolist()
  [2, 2, 0]
  >>> equal(np.array([0, 0, 1, 1]), classes=3)

  Args:
    labels: classes of all that is trained on.
    classes: of the model.
  """
  counts = np.bincount(labels, minlength=classes)
  there = counts > 0
  if len(set(counts[there].tolist())) < 2:
    return None
  return _shares(there.astype(np.float64), len(labels))


def _shares(weights, total):
  """Whole numbers in the proportion of weights, `total` together."""
  exact = weights * total / weights.sum()
  whole = np.floor(exact).astype(np.int32)
  # What is left goes to those that were cut most.
  cut = np.argsort(whole - exact, kind="stable")[: total - whole.sum()]
  whole[cut] += 1
  return whole
