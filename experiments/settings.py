"""The settings of a run: everything that changes its numbers, and what from it.

`Settings` is what `config.json` stores; `build` turns it into the library's
own configuration for a data set and refuses what cannot be run.
"""

from collections.abc import Container
import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Any

from mnemonics_jax import memory
from mnemonics_jax.errors import UserError

if TYPE_CHECKING:
  from mnemonics_jax.data import ClassStream, Dataset
  from mnemonics_jax.phase import Config


@dataclasses.dataclass(frozen=True)
class Settings:
  """One run of one experiment; the flags of the same names explain them."""

  dataset: str
  preset: str
  method: str = "lucir"
  exemplars: str = "mnemonics"
  init_exemplars: str = "herding"
  validate_on: str | None = None
  augment_exemplars: bool = True
  adjust: bool = False
  adjust_parts: int = 2
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
  less_forget: float = 5.0
  reference_code: bool = False

  def __post_init__(self):
    _check_ranges(self)

  @property
  def title(self) -> str:
    return " · ".join([self.dataset, self.method, self.exemplars, self.memory])

  @property
  def validated_on(self) -> str:
    """What validates new exemplars: what was asked for, or the recipe's."""
    default = "new" if self.recipe == "paper" else "all"
    return self.validate_on or default

  @property
  def forgets_less(self) -> bool:
    """Whether the loss has LUCIR's less-forget term."""
    return self.method == "lucir" and self.distill

  def identity(self) -> dict[str, Any]:
    """What decides a run's numbers, as JSON would give it back.

    Runs of earlier versions keep their names: newer settings only appear when
    they differ from what was done before.
    """
    values = json.loads(json.dumps(dataclasses.asdict(self)))
    del values["remat"]  # It changes what is stored, not what is computed.
    values["validate_on"] = self.validated_on
    # What has no effect on a run is no part of it.
    if self.exemplars != "mnemonics":
      del values["validate_on"]
    if self.method == "joint":
      del values["reference_code"]
    before = {
      "dtype": "float32",
      "exemplar_chunk": None,
      "less_forget": 10.0 if self.dataset == "folder" else 5.0,
      "adjust_parts": 2,
      "validate_on": "all",
      "reference_code": False,
    }
    return {
      name: value
      for name, value in values.items()
      if name not in before or value != before[name]
    }


# The smallest and the largest value that makes sense, where there are both.
_RANGES = {
  "epochs": (1, 10**6),
  "base_epochs": (1, 10**6),
  "finetune_epochs": (1, 10**6),
  "meta_epochs": (1, 10**6),
  "batch_size": (1, 2**16),
  "exemplar_chunk": (1, 10**6),
  "adjust_parts": (2, 10**6),
  "max_change": (0, 255),
  "order_seed": (0, 2**32 - 1),
  "seeds": (0, 2**32 - 1),
}


def _check_ranges(settings):
  memory.parse(settings.memory)
  for name, (least, most) in _RANGES.items():
    value = getattr(settings, name)
    for number in value if isinstance(value, tuple) else (value,):
      if number is not None and not least <= number <= most:
        raise UserError(
          name,
          f"`{name}={number}` cannot be used",
          f"it must lie between {least} and {most}",
        )
  for name in ("learning_rate", "finetune_learning_rate"):
    if not 0 < getattr(settings, name) < float("inf"):
      raise UserError(
        name,
        f"`{name}={getattr(settings, name)}` cannot be used",
        "it must be a positive number",
      )
  for name in ("weight_decay", "less_forget"):
    if not 0 <= getattr(settings, name) < float("inf"):
      raise UserError(
        name,
        f"`{name}={getattr(settings, name)}` cannot be used",
        "it must be 0 or a positive number",
      )
  if not settings.seeds:
    raise UserError(
      "seeds", "`seeds` is empty", "name at least one, such as `seeds=0`"
    )
  if len(set(settings.seeds)) < len(settings.seeds):
    raise UserError("seeds", "`seeds` names a seed twice", "name each once")
  if settings.images_per_class is not None and settings.images_per_class < 1:
    raise UserError(
      "images_per_class",
      f"`images_per_class={settings.images_per_class}` cannot be used",
      "it must be 1 or more",
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
  for name, other in without_effect(settings).items():
    if name in given:
      raise UserError(
        name,
        f"`{name}` has no effect with {other}",
        "leave out one of them",
      )


def without_effect(settings: Settings) -> dict[str, str]:
  """Names of settings that would change nothing, and because of what."""
  learned = settings.exemplars == "mnemonics"
  idle = []
  if settings.method == "joint":
    # Switched off they are only redundant.
    on = [
      settings.adjust,
      settings.finetune != "none",
      settings.transfer != "none",
      settings.reference_code,
    ]
    names = itertools.compress(
      ("adjust", "finetune", "transfer", "reference_code"), on
    )
    idle.append((names, "`method=joint`, which sees all data again,"))
  if not (learned or settings.adjust):
    idle.append((LEARNING, f"`exemplars={settings.exemplars}` and --noadjust"))
  if not learned:
    chosen = f"`exemplars={settings.exemplars}`"
    idle.append((("init_exemplars", "validate_on"), chosen))
  if not settings.adjust:
    idle.append((("adjust_parts",), "--noadjust"))
  if settings.finetune == "none":
    idle.append((FINETUNING, "`finetune=none`"))
  if not settings.forgets_less:
    other = "`method=lucir` --nodistill"
    if settings.method != "lucir":
      other = f"`method={settings.method}`"
    idle.append((("less_forget",), other))
  found = {}
  for names, other in idle:
    for name in names:
      found.setdefault(name, other)
  return found


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
  from mnemonics_jax.phase import Schedule
  from mnemonics_jax.phase.schedule import milestones_at

  return Schedule(
    epochs=epochs,
    learning_rate=settings.learning_rate,
    milestones=milestones_at(settings.milestones, epochs),
    batch_size=settings.batch_size,
    weight_decay=settings.weight_decay,
  )


def build(
  settings: Settings, dataset: "Dataset"
) -> "tuple[Config, ClassStream]":
  """The configuration of the phases and the stream of data they learn."""
  from mnemonics_jax import augment, data, methods, networks
  from mnemonics_jax.methods import reference
  from mnemonics_jax.phase import Config

  method = methods.METHODS[settings.method](distill=settings.distill)
  if isinstance(method, methods.LUCIR):
    method = dataclasses.replace(method, less_forget_base=settings.less_forget)
  if settings.reference_code:
    method = reference.method(method)
  stream = data.stream(
    dataset,
    phases=settings.phases,
    base_classes=settings.base_classes,
    order_seed=settings.order_seed,
    images_per_class=settings.images_per_class,
    joint=method.joint,
  )
  network = networks.NETWORKS[settings.net](
    image_shape=stream.image_shape,
    mean=stream.mean,
    std=stream.std,
    dtype=None if settings.dtype == "float32" else settings.dtype,
    remat=settings.remat,
    last_relu=settings.reference_code and reference.last_relu(method),
  )
  train = _schedule(settings, settings.epochs)
  config = Config(
    network,
    method,
    stream.shape,
    memory=memory.parse(settings.memory),
    exemplars=settings.exemplars,
    init_exemplars=settings.init_exemplars,
    validate_on=settings.validated_on,
    adjust=settings.adjust,
    adjust_parts=settings.adjust_parts,
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
    augment=augment.AUGMENTATIONS[settings.augment],
  )
  return config, stream
