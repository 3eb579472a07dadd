"""The meta level: E ← E − β ∇_E L_c(Θ'(E); V), as three functions of a state.

`prepare` checks what is learned from and makes it a `Problem`. `init` gives the state
before the first meta step, `steps` takes some of them, `measure` says how an epoch
went. Save or watch the state between these calls.
"""

import dataclasses
import functools
from typing import Any, NamedTuple

from flax import struct
import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np
import optax

from mnemonics_jax.bilevel import base_level
from mnemonics_jax.bilevel.config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.data import (
  Data,
  Features,
  as_data,
  check_starts,
  shuffle,
  take,
  with_mask,
)
from mnemonics_jax.errors import check_count
from mnemonics_jax.nn.model import map_blocks
from mnemonics_jax.nn.pixels import from_uint8, low_pass
from mnemonics_jax.parallel import mesh
from mnemonics_jax.types import Exemplars, PyTree, Variables


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


class BilevelState(NamedTuple):
  """Where the meta loop is: save it, pass it back, continue bit for bit.

  Attributes:
    images: the exemplars as they are.
    initial: the exemplars as they were, the centre of the trust region.
    opt_state: state of the outer optimiser.
    step: meta steps done.
    key: root of all randomness; each step folds its number into it.
    sums: what the steps of the last epoch have measured so far.
  """

  images: Float[Array, "n h w c"]
  initial: Float[Array, "n h w c"]
  opt_state: PyTree
  step: Int[Array, ""]
  key: Array
  sums: dict[str, Float[Array, ""]]


def init(
  key: Array,
  exemplars: Exemplars,
  config: BilevelConfig = DEFAULT,
  outer_tx: optax.GradientTransformation | None = None,
) -> BilevelState:
  """The state before the first meta step."""
  # The length of an epoch enters the learning rate, not the optimiser's state.
  tx = outer_tx or _outer_tx(config, steps=1)
  images = jnp.asarray(exemplars.images)
  return BilevelState(
    images, images, tx.init(images), jnp.int32(0), key, _no_sums()
  )


def steps(problem: Problem, state: BilevelState, count: int) -> BilevelState:
  """At most `count` meta steps, none of them past the end of an epoch.

  Raises:
    FloatingPointError: a loss or a pixel is not finite.
  """
  check_count("count", count)
  epoch, first = divmod(int(state.step), problem.steps)
  if first == 0:
    state = state._replace(sums=_no_sums())
  count = min(count, problem.steps - first)
  state, finite = _steps(problem, state, count)
  if not finite:
    last = first + count
    raise FloatingPointError(
      f"Learning exemplars diverged in epoch {epoch}, steps {first} to {last}"
      f" (meta loss {float(state.sums['loss']) / last:g}). A smaller inner_lr,"
      " fewer inner_steps or a smaller scale σ of the head usually help; Adam"
      " as inner optimiser needs eps_root > 0."
    )
  return state


def measure(
  problem: Problem, state: BilevelState, reference: Array | None = None
) -> dict[str, float]:
  """The history row of the epoch that `state` has just completed.

  Args:
    problem: what is learned.
    state: of the meta loop.
    reference: what `initial_features(problem, state)` gives for any state of this
      loop; None computes it again.
  """
  if reference is None:
    reference = initial_features(problem, state)
  # The number of steps is traced: dividing by a constant rounds otherwise.
  row = _measure(problem, state, reference, problem.steps)
  return {name: float(value) for name, value in row.items()}


def evaluate(problem: Problem, key: Array, images: Array) -> float:
  """The meta loss of an epoch if the exemplars are these images, as stored.

  Args:
    problem: what is learned.
    key: of batches, views and starts; with the same one, images compare.
    images: instead of those that are learned; `stored_fn` is not applied.
  """
  return float(_evaluate(problem, key, images, problem.steps))


@jax.jit
def _evaluate(problem, key, images, steps):
  config = dataclasses.replace(problem.config, stored_fn=None)
  exemplars = mesh.shard(problem.exemplars._replace(images=images))
  order_key, step_key = jax.random.split(key)
  order = None
  if problem.batch_size is not None:
    order = shuffle(order_key, problem.valid.mask)

  def step(t, total):
    start_key, key = jax.random.split(jax.random.fold_in(step_key, t))
    return total + base_level.meta_loss(
      exemplars,
      _start(problem, start_key),
      _batch(problem, order, t),
      apply_fn=problem.apply_fn,
      config=config,
      key=key,
      active=problem.active,
      inner_data=problem.inner_data,
    )

  return lax.fori_loop(0, steps, step, jnp.float32(0)) / steps


def initial_features(problem: Problem, state: BilevelState) -> Array:
  """What the frozen model makes of the exemplars as they were."""
  return embed(
    problem.variables,
    state.initial,
    apply_fn=problem.apply_fn,
    config=problem.config,
  )


def _no_sums():
  return {"loss": jnp.float32(0), "clipped": jnp.float32(0)}


@jax.jit
def _steps(problem, state, count):
  """`count` steps of an epoch, and whether all that they gave is finite.

  Devices share the rows of the exemplars and of each batch.
  """
  config, valid = problem.config, problem.valid
  # Traced, unless the config says it: phases of any length share the program.
  steps = config.steps_per_epoch or problem.steps
  state, exemplars = _shard(state), mesh.shard(problem.exemplars)
  tx = problem.outer_tx or _outer_tx(config, steps)
  images_mask = _like(exemplars.mask, state.images)
  reach = 1.0 if config.max_change is None else config.max_change / 255
  low = jnp.maximum(state.initial - reach, 0)
  high = jnp.minimum(state.initial + reach, 1)
  order_key, step_key = jax.random.split(state.key)
  order = None
  if problem.batch_size is not None:
    epoch_start = state.step - state.step % steps
    order = shuffle(jax.random.fold_in(order_key, epoch_start), valid.mask)

  def meta_step(_, state):
    start_key, key = jax.random.split(jax.random.fold_in(step_key, state.step))
    loss, grads = base_level.hypergradient(
      exemplars._replace(images=state.images),
      _start(problem, start_key),
      _batch(problem, order, state.step % steps),
      apply_fn=problem.apply_fn,
      config=config,
      key=key,
      active=problem.active,
      inner_data=problem.inner_data,
    )
    updates, opt_state = tx.update(grads, state.opt_state, state.images)
    proposed = state.images + updates
    if config.frequencies is not None:
      change = low_pass(proposed - state.initial, config.frequencies)
      proposed = state.initial + change
    projected = jnp.clip(proposed, low, high)
    images = jnp.where(images_mask, projected, state.images)
    measured = {
      "loss": loss,
      "clipped": _mean(projected != proposed, images_mask),
    }
    sums = {
      name: (total + measured[name]).astype(total.dtype)
      for name, total in state.sums.items()
    }
    state = state._replace(
      images=images, opt_state=opt_state, step=state.step + 1, sums=sums
    )
    return _shard(state)

  state = lax.fori_loop(0, count, meta_step, state)
  finite = jnp.isfinite(state.images).all() & jnp.isfinite(state.sums["loss"])
  return mesh.replicate((state, finite))


def _batch(problem, order, t):
  """The validation data of step `t` of an epoch."""
  valid = problem.valid
  if order is None:
    return mesh.shard(jax.tree.map(lambda batches: batches[t], valid))
  rows, counted = take(order, valid.mask, problem.batch_size, t)
  inputs = mesh.take(valid[0], rows)
  return mesh.shard(type(valid)(inputs, valid.labels[rows], counted))


def _start(problem, key):
  """Where the base level of a step starts: Θ, or one of several."""
  if problem.starts is None:
    return problem.variables
  choices = len(jax.tree.leaves(problem.starts)[0])
  pick = jax.random.randint(key, (), 0, choices)
  return jax.tree.map(lambda x: x[pick], problem.starts)


@jax.jit
def _measure(problem, state, reference, steps):
  exemplars = problem.exemplars
  images_mask = _like(exemplars.mask, state.images)
  moved = jnp.abs(state.images - state.initial)
  features = embed(
    problem.variables,
    state.images,
    apply_fn=problem.apply_fn,
    config=problem.config,
  )
  cosine, euclidean = _distances(features, reference, exemplars.mask)
  return dict(
    **{name: total / steps for name, total in state.sums.items()},
    displacement=255 * _mean(moved, images_mask),
    cosine=cosine,
    euclidean=euclidean,
  )


def _shard(state):
  """The state with all that has the shape of the images sharded by rows."""
  shape = state.images.shape
  images, initial, opt_state = jax.tree.map(
    lambda x: mesh.shard(x) if x.shape == shape else x,
    (state.images, state.initial, state.opt_state),
  )
  return state._replace(images=images, initial=initial, opt_state=opt_state)


def _outer_tx(config, steps) -> optax.GradientTransformation:
  rate: Any = lambda step: _rate(config, step, config.epochs * steps)
  if config.outer_schedule == "constant":
    rate = config.outer_lr
  if config.outer_optimizer == "sgd":
    return optax.sgd(rate)
  return optax.adam(rate, b1=0.9, b2=0.99)


def _rate(config, step, total):
  """β of a meta step of so many; written out, for `total` may be traced."""
  total = jnp.maximum(total, 1)
  if config.outer_schedule == "cosine":
    part = jnp.pi * jnp.minimum(step, total) / total
    return config.outer_lr * (0.5 * (1 + jnp.cos(part)))
  fifths = jnp.floor(step / jnp.maximum(total // 5, 1))
  return config.outer_lr * jnp.power(0.5, fifths)


def _distances(features, reference, mask):
  """Mean cosine and Euclidean distance of the real rows."""
  norm = lambda x: jnp.sqrt(jnp.sum(x * x, axis=-1))
  scale = jnp.maximum(norm(features) * norm(reference), 1e-12)
  cosine = 1 - jnp.sum(features * reference, axis=-1) / scale
  euclidean = norm(features - reference)
  return _mean(cosine, mask), _mean(euclidean, mask)


def _mean(x, mask):
  """Mean of what the mask lets pass; 0 if that is nothing."""
  return jnp.where(mask, x, 0).sum() / jnp.maximum(mask.sum(), 1)


def _like(mask, images):
  """A row mask in the shape of the images."""
  shape = (-1,) + (1,) * (images.ndim - 1)
  return jnp.broadcast_to(mask.reshape(shape), images.shape)
