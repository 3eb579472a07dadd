"""The compiled programs of the meta level: its state, its steps, its measures."""

import functools
from typing import NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int
import optax

from mnemonics_jax import devices
from mnemonics_jax.bilevel_config import DEFAULT, BilevelConfig
from mnemonics_jax.bilevel_data import from_uint8, shuffle, take
from mnemonics_jax.bilevel_unroll import hypergradient
from mnemonics_jax.types import Exemplars, PyTree

_CHUNK = 256  # images that pass the frozen backbone at once


class BilevelState(NamedTuple):
  """Where the meta loop is: save it, pass it back, continue bit for bit.

  Attributes:
    images: the exemplars as they are.
    initial: the exemplars as they were, the centre of the trust region.
    opt_state: state of the outer optimiser.
    step: meta steps done.
    key: root of all randomness; each step folds its number into it.
    sums: what the steps of the running epoch have measured so far.
  """

  images: Float[Array, "n h w c"]
  initial: Float[Array, "n h w c"]
  opt_state: PyTree
  step: Int[Array, ""]
  key: Array
  sums: dict[str, Float[Array, ""]]


def init_state(
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
    images, images, tx.init(images), jnp.int32(0), key, no_sums()
  )


def no_sums():
  return {"loss": jnp.float32(0), "clipped": jnp.float32(0)}


@functools.partial(
  jax.jit, static_argnames=("apply_fn", "config", "outer_tx", "steps", "size")
)
def meta_steps(
  state, count, exemplars, variables, starts, valid, active, inner_data,
  *, apply_fn, config, outer_tx, steps, size,
):  # fmt: skip
  """`count` of an epoch's `steps`, and whether all that they gave is finite.

  Batches have `size` images; None means that `valid` holds one batch per step.
  Devices share the rows of the exemplars and of each batch.
  """
  state, exemplars = _split(state), devices.split(exemplars)
  tx = outer_tx or _outer_tx(config, steps)
  images_mask = _like(exemplars.mask, state.images)
  reach = 1.0 if config.max_change is None else config.max_change / 255
  low = jnp.maximum(state.initial - reach, 0)
  high = jnp.minimum(state.initial + reach, 1)
  order_key, step_key = jax.random.split(state.key)
  if size is not None:
    epoch_start = state.step - state.step % steps
    order = shuffle(jax.random.fold_in(order_key, epoch_start), valid.mask)

  def meta_step(_, state):
    t = state.step % steps
    start_key, key = jax.random.split(jax.random.fold_in(step_key, state.step))
    if size is not None:
      rows, counted = take(order, valid.mask, size, t)
      inputs = devices.draw(valid[0], rows)
      batch = type(valid)(inputs, valid.labels[rows], counted)
    else:
      batch = jax.tree.map(lambda batches: batches[t], valid)
    batch = devices.split(batch)
    theta = variables
    if starts is not None:
      choices = len(jax.tree.leaves(starts)[0])
      pick = jax.random.randint(start_key, (), 0, choices)
      theta = jax.tree.map(lambda x: x[pick], starts)
    loss, grads = hypergradient(
      exemplars._replace(images=state.images),
      theta,
      batch,
      apply_fn=apply_fn,
      config=config,
      key=key,
      active=active,
      inner_data=inner_data,
    )
    updates, opt_state = tx.update(grads, state.opt_state, state.images)
    proposed = state.images + updates
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
    return _split(state)

  state = lax.fori_loop(0, count, meta_step, state)
  finite = jnp.isfinite(state.images).all() & jnp.isfinite(state.sums["loss"])
  return devices.gather((state, finite))


@functools.partial(jax.jit, static_argnames=("apply_fn", "config"))
def measure(state, exemplars, variables, reference, steps, *, apply_fn, config):
  """The history row of an epoch of `steps` that has just ended."""
  images_mask = _like(exemplars.mask, state.images)
  moved = jnp.abs(state.images - state.initial)
  features = embed_all(
    variables, state.images, apply_fn=apply_fn, config=config
  )
  cosine, euclidean = _distances(features, reference, exemplars.mask)
  return dict(
    **{name: total / steps for name, total in state.sums.items()},
    displacement=255 * _mean(moved, images_mask),
    cosine=cosine,
    euclidean=euclidean,
  )


def _split(state):
  """The state with all that has the shape of the images spread by rows."""
  shape = state.images.shape
  images, initial, opt_state = jax.tree.map(
    lambda x: devices.split(x) if x.shape == shape else x,
    (state.images, state.initial, state.opt_state),
  )
  return state._replace(images=images, initial=initial, opt_state=opt_state)


def _outer_tx(config, steps) -> optax.GradientTransformation:
  lr, total = config.outer_lr, max(config.epochs * steps, 1)
  schedule = {
    "constant": lambda: lr,
    "cosine": lambda: optax.cosine_decay_schedule(lr, total),
    "halving": lambda: optax.exponential_decay(
      lr, max(total // 5, 1), 0.5, staircase=True
    ),
  }[config.outer_schedule]()
  if config.outer_optimizer == "sgd":
    return optax.sgd(schedule)
  return optax.adam(schedule, b1=0.9, b2=0.99)


@functools.partial(jax.jit, static_argnames=("apply_fn", "config"))
def embed_all(variables, images, *, apply_fn, config):
  """Features (or else logits) of many images, a chunk at a time."""
  embed = config.features_fn or apply_fn
  size = devices.divisible(min(_CHUNK, len(images)))
  padding = [(0, -len(images) % size)] + [(0, 0)] * (images.ndim - 1)
  padded = jnp.pad(devices.gather(images), padding)
  chunks = padded.reshape(-1, size, *images.shape[1:])
  out = lax.map(
    lambda chunk: embed(variables, from_uint8(devices.split(chunk))), chunks
  )
  return devices.gather(out.reshape(-1, *out.shape[2:])[: len(images)])


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
