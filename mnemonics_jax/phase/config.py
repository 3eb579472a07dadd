"""What a phase does: every choice of the method, and the sizes that follow."""

from collections.abc import Callable, Mapping, Sequence
import dataclasses
import functools
import itertools
import math
from typing import Any, NamedTuple

import optax

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import registry, settings
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data.stream import StreamShape
from mnemonics_jax.errors import UserError, check_count
from mnemonics_jax.memory import Codec, MemoryPolicy, PerClass, Raw, WebP
from mnemonics_jax.methods import Method
from mnemonics_jax.nn.augment import Augmentation, CropFlip
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.networks import Network


@dataclasses.dataclass(frozen=True)
class Schedule:
  """How long and how fast to train.

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


class Sizes(NamedTuple):
  """Sizes that no phase exceeds: shapes stay the same for the whole run.

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
  """The next of 8, 12, 16, 24, 32, 48...: at most half of it is padding."""
  size = least
  while size < count:
    size = size * 3 // 2 if size & (size - 1) == 0 else size * 4 // 3
  return size


@dataclasses.dataclass(frozen=True)
class Config(settings.Phase):
  """Everything that decides what a phase does; hashable.

  The keywords beside these attributes are the settings of `settings.Phase`.

  Attributes:
    network: images to features; the method brings the head.
    method: the base method.
    shape: of the stream of data the phases learn from (`stream.shape`).
    memory: how much may be kept of each class; if that is bytes, what
      `memory.fit` makes of it.
    codec: how exemplars are kept: as they are, or coded.
    bilevel: how exemplars are learned and adjusted.
    base: schedule of phase 0.
    train: schedule of the later phases.
    balance: schedule of the fine-tune.
    augment: augmentation of training images.
  """

  network: Network
  method: Method
  shape: StreamShape | OpenShape
  memory: MemoryPolicy = PerClass(20)
  codec: Codec = Raw()
  bilevel: BilevelConfig = BilevelConfig()
  base: Schedule = Schedule()
  train: Schedule = Schedule()
  balance: Schedule = Schedule(50, 0.01, ())
  augment: Augmentation = CropFlip()
  _: dataclasses.KW_ONLY
  # Commands and the Learner have presets instead.
  exemplars: str = settings.redefault(settings.Phase, "exemplars", "herding")
  validate_on: str = settings.redefault(settings.Phase, "validate_on", "all")  # pyright: ignore

  def __post_init__(self):
    super().__post_init__()
    if self.method.joint != self.shape.joint:
      raise UserError(
        "method",
        f"`method={self.method.name}` and the stream do not fit: only the joint"
        " upper bound sees the data of earlier phases",
        f"make the stream with joint={self.method.joint}",
      )
    if self.network.image_shape != self.shape.image_shape:
      raise UserError(
        "network",
        f"the network takes images {self.network.image_shape}, the stream has"
        f" {self.shape.image_shape}",
        "give the network the stream's image_shape",
      )
    self.codec.check(self.shape.image_shape)
    if self.drift and self.imitate:
      raise UserError(
        "drift",
        f"`drift={self.drift}` cannot be used with `imitate`",
        "leave out one of them",
      )
    if (self.learned or self.adjust) and isinstance(self.codec, WebP):
      raise UserError(
        "codec",
        f"`codec={self.codec}` has no gradient, and exemplars are learned through"
        " it",
        "use jpeg or raw, or exemplars that are chosen and not adjusted",
      )
    memory_lib.check(
      self.memory,
      self.shape.classes_per_phase,
      self.shape.smallest_class,
      len(self.codec.shared(self.shape.image_shape)),
    )
    if self.method.holdout:
      self._check_memory(
        2, f"`method={self.method.name}` trains on one, calibrates with another"
      )
    if self.adjust and not self.method.joint:
      self._check_memory(
        self.adjust_parts, f"`adjust` deals them to {self.adjust_parts} parts"
      )

  def _check_memory(self, least, reason):
    """Refuses a memory that ends with fewer exemplars of a class."""
    classes = sum(self.shape.classes_per_phase)
    shared = len(self.codec.shared(self.shape.image_shape))
    left = memory_lib.certain(self.memory, classes, shared)
    if left < least:
      kind = str(self.memory).split(":")[0]
      enough = least * (classes if kind == "total" else 1)
      in_bytes = self.memory.bytes_allowance(classes) is not None
      raise UserError(
        "memory",
        f"`memory={self.memory}` ends with {left} of each class, and {reason}",
        "use more bytes or another `codec`"
        if in_bytes
        else f"use {kind}:{enough} or more",
      )

  @functools.cached_property
  def model(self) -> Model:
    """Network and head, for all classes of the stream."""
    return Model(self.network, self.method.head, self.shape.classes)

  @functools.cached_property
  def sizes(self) -> Sizes:
    """Of all arrays, from the data and the memory."""
    return derive(self.shape, self.memory, imitates=self.drift > 0)

  @property
  def learned(self) -> bool:
    """Whether new exemplars are learned."""
    return self.exemplars == "mnemonics"
