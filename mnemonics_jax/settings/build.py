"""What settings become: methods, networks, schedules, a `phase.Config`."""

import dataclasses
from typing import TYPE_CHECKING, Any

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.settings.declare import declared
from mnemonics_jax.settings.settings import Phase, Settings

if TYPE_CHECKING:
  from mnemonics_jax.bilevel import BilevelConfig
  from mnemonics_jax.data import ClassStream, Dataset
  from mnemonics_jax.methods import Method
  from mnemonics_jax.phase import Config, Schedule


def method(settings: Settings) -> "Method":
  """The base method, in the form of the reference code if that is asked for."""
  from mnemonics_jax.methods import METHODS

  cls = METHODS[settings.method]
  options = {field.name for field in dataclasses.fields(cls)}
  given = settings.parts()["method"].items()
  made = cls(**{name: value for name, value in given if name in options})
  return made.reference() if settings.reference_code else made


def network_options(settings: Settings, method: "Method") -> dict[str, Any]:
  """Options of one of our networks.

  Args:
    settings: of a run.
    method: decides whether features pass a last ReLU in the reference code.
  """
  options = settings.parts()["network"]
  if settings.dtype == "float32":
    options["dtype"] = None
  last_relu = settings.reference_code and method.last_relu
  return {**options, "last_relu": last_relu}


def bilevel(settings: Settings) -> "BilevelConfig":
  """The recipe of the exemplar level, overridden by single settings."""
  from mnemonics_jax.bilevel import BilevelConfig

  recipes = {"tuned": BilevelConfig, "paper": BilevelConfig.paper}
  options = settings.parts()["bilevel"]
  return recipes[options.pop("recipe")](**options)


def schedules(settings: Settings) -> dict[str, "Schedule"]:
  """The schedules of `phase.Config`: `base`, `train` and `balance`."""
  from mnemonics_jax.phase import Schedule
  from mnemonics_jax.phase.config import milestones_at

  found = {}
  for name in ("base", "train", "balance"):
    options = settings.parts()[name]
    parts = options.pop("milestones", ())
    options["milestones"] = milestones_at(parts, options["epochs"])
    found[name] = Schedule(**options)
  return found


def fields(settings: Settings) -> dict[str, Any]:
  """The fields of `phase.Config` that do not depend on data."""
  from mnemonics_jax.nn.augment import AUGMENTATIONS

  shared = {
    field.name: getattr(settings, field.name) for field in declared(Phase)
  }
  return {
    **shared,
    **schedules(settings),
    "validate_on": settings.validated_on,
    "bilevel": bilevel(settings),
    "augment": AUGMENTATIONS[settings.augment],
  }


def build(
  settings: Settings, dataset: "Dataset"
) -> "tuple[Config, ClassStream]":
  """The configuration of the phases and the stream of data they learn."""
  from mnemonics_jax import data
  from mnemonics_jax.nn.networks import NETWORKS
  from mnemonics_jax.phase import Config

  if settings.tuning_fraction is not None:
    dataset = data.for_tuning(dataset, settings.tuning_fraction)
  made = method(settings)
  stream = data.stream(dataset, joint=made.joint, **settings.parts()["stream"])
  network = NETWORKS[settings.net](
    image_shape=stream.image_shape,
    mean=stream.mean,
    std=stream.std,
    **network_options(settings, made),
  )
  codec = memory_lib.parse_codec(settings.codec)
  memory = memory_lib.parse(settings.memory)
  config = Config(
    network,
    made,
    stream.shape,
    memory=memory_lib.fit(memory, codec, stream[0].images),
    codec=codec,
    **fields(settings),
  )
  return config, stream
