"""What the meta level learns from: exemplars, model and validation data, checked."""

import functools
from typing import Any

from flax import struct
import jax
from jaxtyping import Array, Bool
import numpy as np
import optax

from mnemonics_jax.bilevel import base_level
from mnemonics_jax.bilevel.config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.data import (
  Data,
  Features,
  as_data,
  check_starts,
  with_mask,
)
from mnemonics_jax.nn.model import map_blocks
from mnemonics_jax.nn.pixels import from_uint8
from mnemonics_jax.types import Exemplars, Variables


@struct.dataclass
class Problem:
  """All that stays the same while exemplars are learned; made by `prepare`.

  Attributes:
    exemplars: E as it came in, with a mask.
    variables: Θ.
    valid: V, images or cached features; or one batch per step of an epoch.
    active: classes that compete in the softmax, None for all.
    starts: stacked variables to start the base level from, or None.
    inner_data: real batches mixed into the base level, or None.
    apply_fn: the model.
    config: the settings, resolved.
    outer_tx: instead of the optimiser that the config describes.
    steps: meta steps of an epoch; programs are the same for any number, unless
      the config fixes it.
    batch_size: rows of V per step; None if `valid` holds one batch per step.
  """

  exemplars: Exemplars
  variables: Variables
  valid: Exemplars | Features
  active: Bool[Array, " classes"] | None
  starts: Variables | None
  inner_data: Any
  steps: Any  # An int, and traced within programs.
  apply_fn: ApplyFn | None = struct.field(pytree_node=False)
  config: BilevelConfig = struct.field(pytree_node=False)
  outer_tx: optax.GradientTransformation | None = struct.field(
    pytree_node=False
  )
  batch_size: int | None = struct.field(pytree_node=False)

  @property
  def total_steps(self) -> int:
    return self.config.epochs * self.steps


def prepare(
  exemplars: Exemplars,
  variables: Variables,
  data: Data,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  outer_tx: optax.GradientTransformation | None = None,
  active: Bool[Array, " classes"] | None = None,
  starts: Variables | None = None,
  inner_data: Data | None = None,
  batch_per_step: bool = False,
) -> Problem:
  """Checks what it is given; with `scope="head"`, V passes the backbone once.

  Takes the arguments of `optimize_exemplars`, and one of its own.

  Args:
    batch_per_step: whether `data` is only the first batch of an iterator; each
      epoch then replaces `valid` by its own batches.
  """
  config = config.resolve()
  valid = as_data(data)
  base_level.check(
    exemplars, variables, valid, apply_fn, config, active, inner_data
  )
  check_starts(starts, variables, valid)
  valid = with_mask(valid)
  # Batch statistics belong to a batch, several starts to several backbones.
  one_backbone = config.batch_norm == "frozen" and starts is None
  cacheable = config.on_features and one_backbone and not batch_per_step
  if cacheable and isinstance(valid, Exemplars):
    features = embed(variables, valid.images, apply_fn=apply_fn, config=config)
    valid = Features(features, *valid[1:])
  size = min(config.batch_size or 1, len(valid.labels))
  # Padding, which differs with devices and phases, makes no epoch longer.
  real = max(int(np.asarray(valid.mask).sum()), 1)
  return Problem(
    with_mask(exemplars), variables, valid, active, starts, inner_data,
    steps=config.steps_per_epoch or -(-real // size),
    apply_fn=apply_fn,
    config=config,
    outer_tx=outer_tx,
    batch_size=None if batch_per_step else size,
  )  # fmt: skip


@functools.partial(jax.jit, static_argnames=("apply_fn", "config"))
def embed(variables, images, *, apply_fn, config):
  """Features (or else logits) of many images."""
  network = config.features_fn or apply_fn
  return map_blocks(lambda block: network(variables, from_uint8(block)), images)
