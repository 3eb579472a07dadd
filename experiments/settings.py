"""The settings of a run: everything that changes its numbers, and what from it.

`Settings` is what `config.json` stores; `build` turns it into the library's
own configuration for a data set and refuses what cannot be run.
"""

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from experiments.effects import without_effect
from mnemonics_jax import memory
from mnemonics_jax.errors import UserError
from mnemonics_jax.runs import published

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
  frequencies: int | None = None
  drift: int = 0
  imitate: bool = False
  meta_epochs: int | None = None
  memory: str = "per_class:20"
  codec: str = "raw"
  code_new: bool = False
  rehearsal: str = "once"
  transfer: str = "none"
  finetune: str = "none"
  distill: bool = True
  phases: int = 5
  base_classes: int | None = None
  classes: int | None = None
  order_seed: int = 1993
  seeds: tuple[int, ...] = (0,)
  net: str = "resnet32"
  epochs: int = 160
  base_epochs: int = 160
  base_model: str | None = None
  learning_rate: float = 0.1
  base_learning_rate: float | None = None
  weight_decay: float = 5e-4
  batch_size: int = 128
  curve: str = "steps"
  milestones: tuple[float, ...] = (0.5, 0.75)
  finetune_epochs: int = 50
  finetune_learning_rate: float = 0.01
  augment: str = "crop_flip"
  images_per_class: int | None = None
  tuning_fraction: float | None = None
  data: str | None = None
  image_size: int | None = None
  val_fraction: float | None = None
  exemplar_chunk: int | None = None
  dtype: str = "float32"
  remat: bool = False
  stream: str = "auto"
  less_forget: float = 5.0
  reference_code: bool = False

  def __post_init__(self):
    _check_ranges(self)

  @property
  def title(self) -> str:
    """What is done with the data, whatever they are called."""
    kept = self.memory if self.codec == "raw" else f"{self.memory} {self.codec}"
    return " · ".join([self.method, self.exemplars, kept])

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

    Settings without effect have their defaults: runs that differ in nothing else
    are the same run.
    """
    idle = without_effect(self)
    values = {
      field.name: field.default
      if field.name in idle
      else getattr(self, field.name)
      for field in dataclasses.fields(self)
    }
    if "validate_on" not in idle:
      values["validate_on"] = self.validated_on
    if self.base_learning_rate == self.learning_rate:
      values["base_learning_rate"] = None
    if self.base_model is not None:  # What it is, not where.
      values["base_model"] = published.about(self.base_model)["weights_sha256"]
    # They change what is stored where, not what is computed.
    del values["remat"], values["stream"]
    return json.loads(json.dumps(values))


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
  "frequencies": (1, 15),
  "drift": (0, 100),
  "order_seed": (0, 2**32 - 1),
  "seeds": (0, 2**32 - 1),
}


def _check_ranges(settings):
  memory.parse(settings.memory)
  memory.parse_codec(settings.codec)
  if settings.base_model is not None:
    published.about(settings.base_model)
  for name, (least, most) in _RANGES.items():
    value = getattr(settings, name)
    for number in value if isinstance(value, tuple) else (value,):
      if number is not None and not least <= number <= most:
        raise UserError(
          name,
          f"`{name}={number}` cannot be used",
          f"it must lie between {least} and {most}",
        )
  for name in ("learning_rate", "base_learning_rate", "finetune_learning_rate"):
    rate = getattr(settings, name)
    if rate is not None and not 0 < rate < float("inf"):
      raise UserError(
        name,
        f"`{name}={rate}` cannot be used",
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


def _bilevel(settings):
  """The recipe of the exemplar level, overridden by single flags."""
  from mnemonics_jax.bilevel import BilevelConfig

  recipe = {"tuned": BilevelConfig, "paper": BilevelConfig.paper}
  given = dict(
    scope=settings.scope,
    max_change=settings.max_change,
    frequencies=settings.frequencies,
    epochs=settings.meta_epochs,
  )
  given = {name: value for name, value in given.items() if value is not None}
  return recipe[settings.recipe](**given)


def _schedule(settings, epochs, learning_rate):
  from mnemonics_jax.phase import Schedule
  from mnemonics_jax.phase.config import milestones_at

  return Schedule(
    epochs=epochs,
    learning_rate=learning_rate,
    milestones=milestones_at(settings.milestones, epochs),
    batch_size=settings.batch_size,
    weight_decay=settings.weight_decay,
    curve=settings.curve,
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
  if settings.tuning_fraction is not None:
    dataset = data.for_tuning(dataset, settings.tuning_fraction)
  stream = data.stream(
    dataset,
    phases=settings.phases,
    base_classes=settings.base_classes,
    classes=settings.classes,
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
  base_rate = settings.base_learning_rate or settings.learning_rate
  train = _schedule(settings, settings.epochs, settings.learning_rate)
  codec = memory.parse_codec(settings.codec)
  config = Config(
    network,
    method,
    stream.shape,
    memory=memory.fit(memory.parse(settings.memory), codec, stream[0].images),
    codec=codec,
    code_new=settings.code_new,
    rehearsal=settings.rehearsal,
    exemplars=settings.exemplars,
    init_exemplars=settings.init_exemplars,
    validate_on=settings.validated_on,
    adjust=settings.adjust,
    adjust_parts=settings.adjust_parts,
    bilevel=_bilevel(settings),
    drift=settings.drift,
    imitate=settings.imitate,
    augment_exemplars=settings.augment_exemplars,
    exemplar_chunk=settings.exemplar_chunk,
    transfer=settings.transfer,
    finetune=settings.finetune,
    base=_schedule(settings, settings.base_epochs, base_rate),
    train=train,
    balance=dataclasses.replace(
      train,
      epochs=settings.finetune_epochs,
      learning_rate=settings.finetune_learning_rate,
      milestones=(),
      curve="steps",
    ),
    augment=augment.AUGMENTATIONS[settings.augment],
    stream=settings.stream,
  )
  return config, stream
