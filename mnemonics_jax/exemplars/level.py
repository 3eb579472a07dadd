"""A model and a method as the functions that `bilevel` unrolls.

They are frozen dataclasses: equal descriptions find the same compiled program.
"""

import dataclasses
import functools
from typing import NamedTuple

from jax import lax
from jaxtyping import Array, Float
import numpy as np

from mnemonics_jax.bilevel import ApplyFn, BilevelConfig
from mnemonics_jax.memory import Codec, Jpeg, Raw
from mnemonics_jax.methods import Method
from mnemonics_jax.nn import transfer
from mnemonics_jax.nn.augment import Augmentation, NoAugmentation
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Model, backbone
from mnemonics_jax.nn.pixels import JpegLoss
from mnemonics_jax.parallel import mesh
from mnemonics_jax.phase.config import Config
from mnemonics_jax.types import PyTree, Variables

# σ of the inner cosine head for models whose own head has none.
_SIGMA = 10.0


@dataclasses.dataclass(frozen=True)
class _Features:
  model: Model

  def __call__(self, variables, images, train=False):
    network = self.model.network
    return network.features(backbone(variables), images, train)[0]


@dataclasses.dataclass(frozen=True)
class _MethodLogits:
  model: Model
  method: Method

  def __call__(self, variables, images, train=False):
    outputs, _ = self.model.apply(variables, images, train)
    return self.method.logits(variables, outputs)


def _cosine_logits(head: PyTree, features: Float[Array, "n d"]) -> Array:
  """Logits of a cosine head, whatever head the model has.

  σ does not train along.
  """
  sigma = lax.stop_gradient(head.get("sigma", _SIGMA))
  rows = {"weight": head["weight"], "sigma": sigma}
  return CosineHead().scores(rows, features).logits


class Level(NamedTuple):
  """A model and a recipe, ready for `bilevel`.

  Attributes:
    apply_fn: (variables, images) -> the method's logits.
    config: the recipe with the functions filled in.
  """

  apply_fn: ApplyFn
  config: BilevelConfig

  @classmethod
  def of(
    cls,
    recipe: BilevelConfig,
    model: Model,
    method: Method,
    augment: Augmentation,
    codec: Codec = Raw(),
  ) -> "Level":
    """The exemplar level of a method.

    With `scope="head"` the base level trains a cosine head on frozen features:
    it starts from the exemplars' own class means. With a codec, exemplars are
    learned through what it loses.
    """
    config = dataclasses.replace(
      recipe,
      features_fn=_Features(model),
      head_fn=_cosine_logits,
      augment=augment,
      stored_fn=JpegLoss(codec.quality) if isinstance(codec, Jpeg) else None,
    )
    return cls(_MethodLogits(model, method), config.resolve())

  def start(self, variables: Variables) -> Variables:
    """Θ_i with an identity T over it if that is what the base level trains."""
    if self.config.scope != "transfer":
      return variables
    identity = transfer.init(variables["params"]["backbone"], "in_out")
    return transfer.apply(variables, identity)


@functools.cache
def exemplar_level(config: Config) -> Level:
  """Model and recipe of the exemplar level."""
  augment = config.augment if config.augment_exemplars else NoAugmentation()
  return Level.of(
    config.bilevel, config.model, config.method, augment, config.codec
  )


def pad(array: np.ndarray, rows: int) -> Array:
  """The array on every device, with zeros up to so many rows."""
  padding = [(0, rows - len(array))] + [(0, 0)] * (array.ndim - 1)
  return mesh.put_replicated(np.pad(array, padding))
