"""A model and a method as the functions that `bilevel` unrolls.

They are frozen dataclasses: equal descriptions find the same compiled program.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float

from mnemonics_jax.bilevel import ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.data import take
from mnemonics_jax.memory import Codec, Jpeg, Raw
from mnemonics_jax.methods import Classes, Method
from mnemonics_jax.nn import transfer
from mnemonics_jax.nn.augment import Augmentation, NoAugmentation
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Model
from mnemonics_jax.nn.pixels import JpegLoss
from mnemonics_jax.phase.config import Config
from mnemonics_jax.phase.sgd import own_logits
from mnemonics_jax.types import PyTree, Variables

# σ of the inner cosine head for models whose own head has none.
_SIGMA = 10.0


@dataclasses.dataclass(frozen=True)
class _Features:
  model: Model

  def __call__(self, variables, images, train=False):
    return self.model.features(variables, images, train)[0]


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


# Where variables have what the loss of an imitated phase has to know beside them.
IMITATED = "imitated"
# Exemplars that are learned in a step of an imitated phase, and as many others.
IMITATED_BATCH = 64


@dataclasses.dataclass(frozen=True)
class _MethodLoss:
  """A method's own loss as `inner_loss` of `bilevel`.

  Attributes:
    model: network and head.
    method: whose loss it is.
  """

  model: Model
  method: Method

  def __call__(self, variables, batch):
    known = variables[IMITATED]
    # Its mean knows no padding: that becomes copies of real rows.
    mask = batch.mask
    rows, _ = take(jnp.argsort(~mask), mask, len(batch.labels), 0)
    images, labels = batch.images[rows], batch.labels[rows]
    params = _held(variables["params"], known["rows"])
    variables = variables | {"params": params}
    student, _ = self.model.apply(variables, images, train=True)
    student = own_logits(self.method, variables, student)
    teacher, _ = self.model.apply(known["teacher"], images)
    teacher = own_logits(self.method, known["teacher"], teacher)
    classes = Classes(known["old"], known["new"])
    return self.method.loss(student, teacher, labels, classes)[0]


def _held(params, rows):
  """Parameters without a gradient in the head rows that the phase would hold."""

  def hold(leaf):
    moves = rows.reshape(-1, *[1] * (leaf.ndim - 1)) if leaf.ndim else True
    return jnp.where(moves, leaf, lax.stop_gradient(leaf))

  return params | {"head": jax.tree.map(hold, params["head"])}


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

  def imitating(self, model: Model, method: Method, rate: float) -> "Level":
    """The same, but the base level is the training of another phase.

    It trains the whole network with the method's own loss, on the statistics of
    its batches: frozen ones bear no rate at which a phase trains.
    `imitation.imitated` gives it what it trains on.
    """
    config = dataclasses.replace(
      self.config,
      scope="all",
      inner_lr=rate,
      inner_batch_size=IMITATED_BATCH,
      batch_norm="batch",
      batch_size=None,
      features_fn=None,
      head_fn=None,
      inner_loss=_MethodLoss(model, method),
    )
    return self._replace(config=config.resolve())

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


def imitated_level(config: Config) -> Level:
  """The exemplar level whose base level is the training of the next phase."""
  rate = config.train.learning_rate
  return exemplar_level(config).imitating(config.model, config.method, rate)


def learned_on_features(config: Config) -> bool:
  """Whether new exemplars are learned from features of the new images."""
  on_features = exemplar_level(config).config.on_features and not config.imitate
  # Each of several models has features of its own.
  return config.learned and on_features and not config.drift
