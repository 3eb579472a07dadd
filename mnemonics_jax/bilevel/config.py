"""Settings of the bilevel program."""

from collections.abc import Callable
import dataclasses
from typing import Any, Literal, get_args, get_origin, get_type_hints

from jaxtyping import Array
import optax

from mnemonics_jax.errors import UserError, check_count
from mnemonics_jax.settings import Recipe
from mnemonics_jax.types import Exemplars, PyTree, Variables

ApplyFn = Callable[..., Array]
Scope = Literal["auto", "all", "transfer", "head"]
Remat = Literal["none", "step", "nested"]


@dataclasses.dataclass(frozen=True)
class BilevelConfig:
  """How exemplars are learned. The defaults are what works without tuning.

  Frozen and hashable, so that it can be a static argument of `jax.jit`.
  Functions and optax transformations are compared by identity: build them
  once and reuse them, or every call compiles anew.

  >>> BilevelConfig.paper(epochs=5).inner_steps
  50
  >>> BilevelConfig().resolve().scope  # The whole model: no `features_fn`.
  'all'
  >>> BilevelConfig(max_change=0.5)
  Traceback (most recent call last):
  mnemonics_jax.errors.UserError: `max_change=0.5` is not a whole number of grey levels, and exemplars are stored as uint8; round it, so that the trust region survives rounding.

  Attributes:
    scope: what the base level trains: `all` (`variables["params"]`, the
      paper), `transfer` (`variables["transfer"]`) or `head`
      (`variables["params"]["head"]`). `auto` is `head` when `features_fn` and
      `head_fn` are known and `all` otherwise.
    features_fn: `(variables, images) -> features`. With it `scope="head"` sees
      each exemplar once per meta step and unrolls on the head alone.
    head_fn: `(variables["params"]["head"], features) -> logits`. A scale σ is
      steadier when it does not train along: `lax.stop_gradient(head["sigma"])`.
    head_start: where the base level starts when it trains the head on features:
      `imprint` (class means of the exemplars' own features, through which the
      gradient also flows) or `model` (the model's own head, which is already
      good and therefore gives the exemplars little to do).
    imprint_fn: `(head, features, labels, mask) -> head`; None writes unit class
      means into `head["weight"]`, as a cosine head wants them.
    inner_steps: steps of the base level.
    inner_lr: α₂, its step size; None is 1.0 for the head, 0.02 otherwise.
    inner_batch_size: exemplars per step; None is all of them.
    inner_optimizer: any optax transformation instead of plain SGD. Adam needs
      `eps_root > 0`, or its derivative at zero is NaN.
    inner_loss: `(variables, Exemplars) -> scalar` instead of the
      cross-entropy, for a base level that imitates another training loss; on
      features, `images` holds features.
    batch_norm: `frozen` calls `apply_fn(variables, images)`, which should use
      running statistics. `batch` calls it with `train=True` at both levels and
      expects logits from the batch's own statistics. The functions return no
      statistics, so none of the unroll can leak into the model.
    stored_fn: `images -> images`: what is left of exemplars once they are
      stored, with a gradient; None is all of it. They are learned through it.
    augment: `(key, images) -> images`, one view of the exemplars per meta step.
    remat: what the backward pass stores: everything (`none`), the parameters
      after each step (`step`), or only a logarithmic number of them (`nested`).
    truncate: differentiate through the last k steps only; None is all.
    epochs: number of epochs of the meta loop.
    steps_per_epoch: meta steps in each; None is one pass over the data.
    batch_size: validation samples per meta step; None is 4096 on features,
      128 on images.
    outer_lr: β, the pixel step in [0, 1] space.
    outer_optimizer: `adam` (0.9, 0.99) or `sgd`. Hypergradients of single
      pixels are around 1e-5: plain SGD at the paper's 0.01 moves nothing.
    outer_schedule: `cosine`, `constant`, or `halving` (every fifth of the run).
    frequencies: how many diagonals of frequencies of 8×8 blocks may change, 1
      (only their brightness) to 15 (all); None is free. High ones are what coding
      loses, and what another model does not see.
    max_change: trust region around the initial images in whole grey levels
      (1/255), because large changes hurt replay; None is free.
  """

  scope: Scope = "auto"
  features_fn: ApplyFn | None = None
  head_fn: ApplyFn | None = None
  head_start: Literal["imprint", "model"] = "imprint"
  imprint_fn: Callable[..., PyTree] | None = None
  inner_steps: int = 10
  inner_lr: float | None = None
  inner_batch_size: int | None = None
  inner_optimizer: optax.GradientTransformation | None = None
  inner_loss: Callable[[Variables, Exemplars], Array] | None = None
  batch_norm: Literal["frozen", "batch"] = "frozen"
  stored_fn: Callable[[Array], Array] | None = None
  augment: Callable[[Array, Array], Array] | None = None
  remat: Remat = "step"
  truncate: int | None = None
  epochs: int = 10
  steps_per_epoch: int | None = 5
  batch_size: int | None = None
  outer_lr: float = 0.003
  outer_optimizer: Literal["adam", "sgd"] = "adam"
  outer_schedule: Literal["cosine", "halving", "constant"] = "cosine"
  frequencies: int | None = None
  max_change: float | None = 2.0

  @classmethod
  def paper(cls, **changes) -> "BilevelConfig":
    """The settings of Liu et al., CVPR 2020; `changes` replace single ones."""
    values: dict[str, Any] = dict(
      scope="all",
      inner_steps=50,
      inner_lr=0.01,
      epochs=50,
      steps_per_epoch=None,
      outer_lr=0.01,
      outer_optimizer="sgd",
      outer_schedule="halving",
      max_change=None,
    )
    return cls(**(values | changes))

  def __post_init__(self):
    for name, choices in _CHOICES.items():
      if getattr(self, name) not in choices:
        raise UserError(
          name,
          f"`{name}={getattr(self, name)}` is not known",
          f"choose one of {', '.join(choices)}",
        )
    for name, least in _COUNTS.items():
      if getattr(self, name) is not None:
        check_count(name, getattr(self, name), least)
    if self.frequencies is not None:
      Recipe.check_value("frequencies", self.frequencies)
    for name in ("inner_lr", "outer_lr", "max_change"):
      value = getattr(self, name)
      if value is not None and not 0 <= value < float("inf"):
        raise UserError(
          name, f"`{name}={value}` cannot be used", "0 is the least"
        )
    if self.max_change is not None and self.max_change % 1:
      raise UserError(
        "max_change",
        f"`max_change={self.max_change}` is not a whole number of grey levels,"
        " and exemplars are stored as uint8",
        "round it, so that the trust region survives rounding",
      )

  @property
  def on_features(self) -> bool:
    """Whether the base level runs on features rather than on images."""
    head = self.scope in ("head", "auto")
    return head and self.features_fn is not None and self.head_fn is not None

  def resolve(self) -> "BilevelConfig":
    """The same settings with everything left open filled in."""
    scope = self.scope
    if scope == "auto":
      scope = "head" if self.on_features else "all"
    if scope == "head" and not self.on_features and self.head_start != "model":
      raise UserError(
        "scope",
        'scope="head" with head_start="imprint" works on features',
        'give the config features_fn and head_fn, or set head_start="model"',
      )
    return dataclasses.replace(
      self,
      scope=scope,
      inner_lr=_or(self.inner_lr, 1.0 if scope == "head" else 0.02),
      batch_size=_or(self.batch_size, 4096 if self.on_features else 128),
    )


_CHOICES: dict[str, tuple[str, ...]] = {
  name: get_args(kind)
  for name, kind in get_type_hints(BilevelConfig).items()
  if get_origin(kind) is Literal
}
_COUNTS = dict(
  inner_steps=0,
  inner_batch_size=1,
  truncate=0,
  epochs=0,
  steps_per_epoch=1,
  batch_size=1,
)


DEFAULT = BilevelConfig()


def _or(value, default):
  return default if value is None else value
