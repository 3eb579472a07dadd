"""How long and how fast SGD trains."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import math
from typing import Any

import optax

from mnemonics_jax import registry
from mnemonics_jax.errors import UserError, check_count


@dataclasses.dataclass(frozen=True)
class Schedule:
  """How long and how fast to train.

  >>> [round(Schedule(epochs=4, milestones=(2, 3)).rate(e), 4) for e in range(4)]
  [0.1, 0.1, 0.01, 0.001]
  >>> smooth = Schedule(epochs=4, curve="cosine")
  >>> [round(smooth.rate(e), 4) for e in range(4)]
  [0.0962, 0.0691, 0.0309, 0.0038]

  Attributes:
    epochs: passes over the pool.
    learning_rate: of the first epochs, or the highest.
    milestones: epochs after which the learning rate is multiplied by `decay`.
    decay: see `milestones`.
    curve: how the learning rate goes: `steps` at the milestones, `cosine` down to
      zero, `one_cycle` (Smith & Topin 2017) up for a third and down again. A curve
      has no milestones; an epoch has the rate of its middle.
    batch_size: images per step.
    momentum: of SGD.
    weight_decay: L2 pull to zero (to the identity for transfer weights).
  """

  epochs: int = 160
  learning_rate: float = 0.1
  milestones: tuple[int, ...] = (80, 120)
  decay: float = 0.1
  batch_size: int = 128
  momentum: float = 0.9
  weight_decay: float = 5e-4
  curve: str = "steps"

  def __post_init__(self):
    if self.curve not in registry.CURVES:
      raise UserError(
        "curve",
        f"`curve={self.curve}` is not known",
        f"choose one of {', '.join(registry.CURVES)}",
      )
    check_count("epochs", self.epochs)
    check_count("batch_size", self.batch_size, least=1)
    for milestone in self.milestones:
      check_count("milestones", milestone)
    wanted = {
      "learning_rate": (0 < self.learning_rate < math.inf, "positive"),
      "decay": (0 < self.decay < math.inf, "positive"),
      "momentum": (0 <= self.momentum < 1, "between 0 and 1"),
      "weight_decay": (0 <= self.weight_decay < math.inf, "0 or more"),
    }
    for name, (fits, words) in wanted.items():
      if not fits:
        value = getattr(self, name)
        raise UserError(
          name, f"`{name}={value}` cannot be used", f"it must be {words}"
        )

  def rate(self, epoch: int) -> float:
    """The learning rate of an epoch."""
    if self.curve != "steps":
      return float(_CURVES[self.curve](self)(epoch + 0.5))
    passed = sum(epoch >= milestone for milestone in self.milestones)
    return self.learning_rate * self.decay**passed

  def steps(self, images: int) -> int:
    """Steps of an epoch over so many images; the last batch wraps around."""
    return math.ceil(images / self.batch_size)


_CURVES: Mapping[str, Callable[[Schedule], Callable[[float], Any]]] = {
  "cosine": lambda s: optax.cosine_decay_schedule(s.learning_rate, s.epochs),
  "one_cycle": lambda s: optax.cosine_onecycle_schedule(
    s.epochs, s.learning_rate
  ),
}


def milestones_at(parts: Sequence[float], epochs: int) -> tuple[int, ...]:
  """Milestones after these parts of the epochs, for short schedules too.

  Each comes at least one epoch after the one before; those for which no epoch
  is left are dropped.

  >>> [milestones_at((0.5, 0.75), epochs) for epochs in (160, 3, 2, 1)]
  [(80, 120), (1, 2), (1,), ()]

  Args:
    parts: of the schedule, in rising order.
    epochs: its length.
  """
  milestones, last = [], 0
  for part in parts:
    last = max(int(epochs * part), last + 1)
    if last < epochs:
      milestones.append(last)
  return tuple(milestones)
