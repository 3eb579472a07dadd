"""The settings of a run: everything that changes its numbers, and what from it.

`Settings` is what `config.json` stores; `build` turns it into the library's
own configuration for a data set and refuses what cannot be run.
"""

import dataclasses
import itertools

import numpy as np

from mnemonics_jax import augment, networks, protocol
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data import Dataset
from mnemonics_jax.methods import METHODS
from mnemonics_jax.model import Model
from mnemonics_jax.phase import Config
from mnemonics_jax.stream import ClassStream
from mnemonics_jax.training import Schedule


class UserError(ValueError):
  """A mistake in flags; the message names the flag and the fix."""


@dataclasses.dataclass(frozen=True)
class Settings:
  """One run of one experiment; the flags of the same names explain them."""

  dataset: str
  preset: str
  method: str = "lucir"
  exemplars: str = "herding"
  init_exemplars: str = "herding"
  adjust: bool = False
  recipe: str = "tuned"
  scope: str | None = None
  max_change: int | None = None
  meta_epochs: int | None = None
  memory: str = "per_class:20"
  transfer: str = "none"
  finetune: str = "none"
  distill: bool = True
  phases: int = 5
  base_classes: int | None = None
  order_seed: int = 1993
  seeds: tuple[int, ...] = (0,)
  net: str = "resnet32"
  epochs: int = 160
  base_epochs: int = 160
  learning_rate: float = 0.1
  weight_decay: float = 5e-4
  batch_size: int = 128
  milestones: tuple[float, ...] = (0.5, 0.75)
  finetune_epochs: int = 50
  finetune_learning_rate: float = 0.01
  augment: str = "crop_flip"
  images_per_class: int | None = None
  data: str | None = None
  image_size: int | None = None
  val_fraction: float | None = None

  def __post_init__(self):
    _check_ranges(self)

  @property
  def title(self) -> str:
    return " · ".join([self.dataset, self.method, self.exemplars, self.memory])


# The letter of the paper for CIFAR-100.
PAPER = dict(
  net="resnet32",
  epochs=160,
  base_epochs=160,
  learning_rate=0.1,
  weight_decay=5e-4,
  batch_size=128,
  milestones=(0.5, 0.75),
  finetune_epochs=50,
  finetune_learning_rate=0.01,
  images_per_class=None,
)


def follows_paper(settings: Settings) -> bool:
  """Whether network and schedule are the paper's (else they are reduced)."""
  return all(getattr(settings, name) == PAPER[name] for name in PAPER)


def _augmentation(settings):
  return {
    "none": augment.NoAugmentation(),
    "crop": augment.CropFlip(pad=1, mirror=False),
    "crop_flip": augment.CropFlip(),
    "resized_crop": augment.ResizedCrop(),
  }[settings.augment]


def _check_ranges(settings):
  protocol.parse_memory(settings.memory)
  for name in ("epochs", "base_epochs", "batch_size", "finetune_epochs"):
    if getattr(settings, name) < 1:
      raise UserError(f"--{name}={getattr(settings, name)} must be 1 or more.")
  if settings.max_change is not None and settings.max_change < 0:
    raise UserError(
      f"--max_change={settings.max_change} must be 0 or more grey levels."
    )
  if settings.meta_epochs is not None and settings.meta_epochs < 1:
    raise UserError(f"--meta_epochs={settings.meta_epochs} must be 1 or more.")
  for name in ("learning_rate", "finetune_learning_rate"):
    if not 0 < getattr(settings, name) < float("inf"):
      raise UserError(
        f"--{name}={getattr(settings, name)} must be a positive number."
      )
  if not 0 <= settings.weight_decay < float("inf"):
    raise UserError(
      f"--weight_decay={settings.weight_decay} must be 0 or a positive number."
    )
  if not settings.seeds:
    raise UserError("--seeds is empty; name at least one, such as --seeds=0.")
  if len(set(settings.seeds)) < len(settings.seeds):
    raise UserError("--seeds names a seed twice; each counts once.")
  for name, seed in [("order_seed", settings.order_seed)] + [
    ("seeds", seed) for seed in settings.seeds
  ]:
    if not 0 <= seed < 2**32:
      raise UserError(f"--{name}={seed} must lie between 0 and 2**32 - 1.")
  if settings.images_per_class is not None and settings.images_per_class < 1:
    raise UserError(
      f"--images_per_class={settings.images_per_class} must be 1 or more."
    )


def _bilevel(settings):
  """The recipe of the exemplar level, overridden by single flags."""
  recipe = {"tuned": BilevelConfig, "paper": BilevelConfig.paper}
  given = dict(
    scope=settings.scope,
    max_change=settings.max_change,
    epochs=settings.meta_epochs,
  )
  given = {name: value for name, value in given.items() if value is not None}
  return recipe[settings.recipe](**given)


def _schedule(settings, epochs):
  return Schedule(
    epochs=epochs,
    learning_rate=settings.learning_rate,
    milestones=tuple(int(epochs * part) for part in settings.milestones),
    batch_size=settings.batch_size,
    weight_decay=settings.weight_decay,
  )


def build(settings: Settings, dataset: Dataset) -> tuple[Config, ClassStream]:
  """The configuration of the phases and the stream of data they learn."""
  classes = len(dataset.class_names)
  split = protocol.split_phases(classes, settings.phases, settings.base_classes)
  method = METHODS[settings.method](distill=settings.distill)
  stream = ClassStream(
    dataset,
    protocol.class_order(classes, settings.order_seed),
    split,
    images_per_class=settings.images_per_class,
    joint=method.joint,
  )
  policy = protocol.parse_memory(settings.memory)
  sizes = stream.class_sizes
  protocol.check_memory(policy, split, min(sizes))
  slots = protocol.memory_slots(policy, split, max(sizes))
  network = networks.NETWORKS[settings.net](
    image_shape=dataset.image_shape, mean=dataset.mean, std=dataset.std
  )
  config = Config(
    model=Model(network, method.head, classes),
    method=method,
    capacity=_pool_capacity(sizes, split, slots, method.joint),
    slots=slots,
    # Later phases learn exemplars in one shape, that of the largest.
    new_slots=max(split[1:], default=split[0]) * slots,
    policy=policy,
    exemplars=settings.exemplars,
    init_exemplars=settings.init_exemplars,
    adjust=settings.adjust,
    bilevel=_bilevel(settings),
    transfer=settings.transfer,
    finetune=settings.finetune,
    base=_schedule(settings, settings.base_epochs),
    train=_schedule(settings, settings.epochs),
    balance=Schedule(
      settings.finetune_epochs,
      settings.finetune_learning_rate,
      milestones=(),
      batch_size=settings.batch_size,
      weight_decay=settings.weight_decay,
    ),
    augment=_augmentation(settings),
  )
  return config, stream


def _pool_capacity(sizes, split, slots, joint):
  """The most images any phase trains on: new data and a full memory."""
  if joint:
    return sum(sizes)
  borders = np.cumsum((0, *split))
  return max(
    sum(sizes[start:stop]) + start * slots
    for start, stop in itertools.pairwise(borders)
  )
