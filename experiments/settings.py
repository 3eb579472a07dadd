"""The settings of a run: everything that changes its numbers, and what from it.

`Settings` is what `config.json` stores; `build` turns it into the library's
own configuration for a data set and refuses what cannot be run.
"""

from collections.abc import Container
import dataclasses
import itertools
from typing import TYPE_CHECKING

import numpy as np

from mnemonics_jax import protocol

if TYPE_CHECKING:
  from mnemonics_jax.data import Dataset
  from mnemonics_jax.phase import Config
  from mnemonics_jax.stream import ClassStream

# What flags may choose from; written out, so that a mistake in a flag or a
# missing data set is answered before the libraries behind them are imported.
METHODS = ("bic", "icarl", "icarl_bce", "joint", "lucir", "lwf")
NETWORKS = ("resnet18", "resnet32", "resnet8")
TRANSFERS = ("none", "in_out", "out")


class UserError(ValueError):
  """A mistake in flags; the message names the flag and the fix."""


class DiskError(UserError):
  """The disk does not do what it should, and would not for what comes next."""


@dataclasses.dataclass(frozen=True)
class Settings:
  """One run of one experiment; the flags of the same names explain them."""

  dataset: str
  preset: str
  method: str = "lucir"
  exemplars: str = "mnemonics"
  init_exemplars: str = "herding"
  augment_exemplars: bool = True
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
  exemplar_chunk: int | None = None
  dtype: str = "float32"
  remat: bool = False

  def __post_init__(self):
    _check_ranges(self)

  @property
  def title(self) -> str:
    return " · ".join([self.dataset, self.method, self.exemplars, self.memory])


def _augmentation(settings):
  from mnemonics_jax import augment

  return {
    "none": augment.NoAugmentation(),
    "crop": augment.CropFlip(pad=1, mirror=False),
    "crop_flip": augment.CropFlip(),
    "resized_crop": augment.ResizedCrop(),
  }[settings.augment]


# The smallest and the largest value that makes sense, where there are both.
_RANGES = {
  "epochs": (1, 10**6),
  "base_epochs": (1, 10**6),
  "finetune_epochs": (1, 10**6),
  "meta_epochs": (1, 10**6),
  "batch_size": (1, 2**16),
  "exemplar_chunk": (1, 10**6),
  "max_change": (0, 255),
  "order_seed": (0, 2**32 - 1),
  "seeds": (0, 2**32 - 1),
}


def _check_ranges(settings):
  protocol.parse_memory(settings.memory)
  for name, (least, most) in _RANGES.items():
    value = getattr(settings, name)
    for number in value if isinstance(value, tuple) else (value,):
      if number is not None and not least <= number <= most:
        raise UserError(
          f"--{name}={number} must lie between {least} and {most}."
        )
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
    raise UserError("--seeds names a seed twice; name each once.")
  if settings.images_per_class is not None and settings.images_per_class < 1:
    raise UserError(
      f"--images_per_class={settings.images_per_class} must be 1 or more."
    )


# Settings that only matter when exemplars are learned, or with a fine-tune.
LEARNING = (
  "augment_exemplars",
  "exemplar_chunk",
  "max_change",
  "meta_epochs",
  "recipe",
  "scope",
)
FINETUNING = ("finetune_epochs", "finetune_learning_rate")


def check_effect(settings: Settings, given: Container[str]) -> None:
  """Refuses settings that were asked for but would change nothing.

  Args:
    settings: of a run.
    given: names of the settings that the user has chosen.
  """
  learned = settings.exemplars == "mnemonics"
  idle = []
  if settings.method == "joint":
    # Switched off they are only redundant.
    on = [
      settings.adjust,
      settings.finetune != "none",
      settings.transfer != "none",
    ]
    names = itertools.compress(("adjust", "finetune", "transfer"), on)
    idle.append((names, "--method=joint, which sees all data again,"))
  if not (learned or settings.adjust):
    idle.append((LEARNING, f"--exemplars={settings.exemplars} and --noadjust"))
  if not learned:
    idle.append((("init_exemplars",), f"--exemplars={settings.exemplars}"))
  if settings.finetune == "none":
    idle.append((FINETUNING, "--finetune=none"))
  for names, other in idle:
    for name in names:
      if name in given:
        raise UserError(
          f"--{name} has no effect with {other}; leave out one of them."
        )


def _bilevel(settings):
  """The recipe of the exemplar level, overridden by single flags."""
  from mnemonics_jax.bilevel import BilevelConfig

  recipe = {"tuned": BilevelConfig, "paper": BilevelConfig.paper}
  given = dict(
    scope=settings.scope,
    max_change=settings.max_change,
    epochs=settings.meta_epochs,
  )
  given = {name: value for name, value in given.items() if value is not None}
  return recipe[settings.recipe](**given)


def _schedule(settings, epochs):
  from mnemonics_jax.training import Schedule

  return Schedule(
    epochs=epochs,
    learning_rate=settings.learning_rate,
    milestones=tuple(int(epochs * part) for part in settings.milestones),
    batch_size=settings.batch_size,
    weight_decay=settings.weight_decay,
  )


def build(
  settings: Settings, dataset: "Dataset"
) -> "tuple[Config, ClassStream]":
  """The configuration of the phases and the stream of data they learn."""
  from mnemonics_jax import devices, methods, networks
  from mnemonics_jax.model import Model
  from mnemonics_jax.phase import Config
  from mnemonics_jax.stream import ClassStream

  _check_shares(settings.batch_size, devices.count())
  classes = len(dataset.class_names)
  split = protocol.split_phases(classes, settings.phases, settings.base_classes)
  method = methods.METHODS[settings.method](distill=settings.distill)
  if isinstance(method, methods.LUCIR) and settings.dataset == "folder":
    method = dataclasses.replace(method, less_forget_base=10.0)  # As ImageNet.
  stream = ClassStream(
    dataset,
    protocol.class_order(classes, settings.order_seed),
    split,
    images_per_class=settings.images_per_class,
    joint=method.joint,
  )
  policy = protocol.parse_memory(settings.memory)
  protocol.check_memory(policy, split, min(stream.class_sizes))
  network = networks.NETWORKS[settings.net](
    image_shape=dataset.image_shape,
    mean=dataset.mean,
    std=dataset.std,
    dtype=None if settings.dtype == "float32" else settings.dtype,
    remat=settings.remat,
  )
  train = _schedule(settings, settings.epochs)
  config = Config(
    model=Model(network, method.head, classes),
    method=method,
    **_shapes(stream, policy, method.joint),
    policy=policy,
    exemplars=settings.exemplars,
    init_exemplars=settings.init_exemplars,
    adjust=settings.adjust,
    bilevel=_bilevel(settings),
    augment_exemplars=settings.augment_exemplars,
    exemplar_chunk=settings.exemplar_chunk,
    transfer=settings.transfer,
    finetune=settings.finetune,
    base=_schedule(settings, settings.base_epochs),
    train=train,
    balance=dataclasses.replace(
      train,
      epochs=settings.finetune_epochs,
      learning_rate=settings.finetune_learning_rate,
      milestones=(),
    ),
    augment=_augmentation(settings),
  )
  return config, stream


def _check_shares(batch_size, count):
  """Refuses batches that the devices cannot share equally."""
  import jax

  if batch_size % count:
    fitting = max(n for n in range(1, count) if batch_size % n == 0)
    # Several processes bring all their devices.
    fewer = f", or --devices={fitting}" if jax.process_count() == 1 else ""
    raise UserError(
      f"--batch_size={batch_size} cannot be shared equally by {count} devices;"
      f" choose a multiple of {count}{fewer}."
    )


def _shapes(stream, policy, joint):
  """Sizes that no phase exceeds: shapes stay the same for the whole run."""
  sizes, split = stream.class_sizes, stream.classes_per_phase
  borders = np.cumsum((0, *split)).tolist()
  kept = lambda seen: protocol.kept(policy, seen, max(sizes))
  pools = [
    sum(sizes[start:stop]) + kept(start)
    for start, stop in itertools.pairwise(borders)
  ]
  later = list(itertools.pairwise(borders))[1:]
  return dict(
    capacity=sum(sizes) if joint else max(pools),
    later_capacity=max(pools[1:], default=0),
    class_size=max(sizes),
    slots=protocol.memory_slots(policy, split, max(sizes)),
    new_slots=max(
      (kept(stop) // stop * (stop - start) for start, stop in later), default=0
    ),
    old_slots=max(kept(start) for start in borders[:-1]),
  )
