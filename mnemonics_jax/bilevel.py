"""Exemplars learned through an unrolled inner loop (Liu et al., CVPR 2020).

Exemplars E are image-shaped parameters. The base level trains a temporary model
Θ'(E) on them, the meta level moves their pixels down the validation loss of Θ':

    E ← E − β ∇_E L_c(Θ'(E); V),   Θ' ← Θ' − α₂ ∇_Θ' L_c(Θ'; E)       (Eq. 8)

Any model written as a function of a dict of arrays will do:

>>> import jax, jax.numpy as jnp
>>> from mnemonics_jax import bilevel
>>> def apply_fn(variables, images):
...   return images.reshape(len(images), -1) @ variables["params"]["w"]
>>> images = jax.random.uniform(jax.random.key(0), (64, 4, 4, 1))
>>> labels = (images[:, 0].mean((1, 2)) > 0.5).astype(jnp.int32)
>>> variables = {"params": {"w": jnp.zeros((16, 2))}}
>>> exemplars = bilevel.Exemplars(images[:6], labels[:6])
>>> result = bilevel.optimize_exemplars(
...   jax.random.key(1), exemplars, variables, (images, labels),
...   apply_fn=apply_fn)
>>> bool(result.history.loss[-1] < result.history.loss[0])
True
>>> bilevel.to_uint8(result.exemplars.images).shape
(6, 4, 4, 1)
"""

from collections.abc import Callable, Iterable
import functools
import itertools
import time
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import numpy as np
import optax

from mnemonics_jax import devices
from mnemonics_jax.bilevel_checks import (
  HypergradientCheck,
  MemoryEstimate,
  check_hypergradient,
  device_bytes,
  estimate_memory,
  step_bytes,
)
from mnemonics_jax.bilevel_config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.bilevel_data import (
  Features,
  as_data,
  check_starts,
  deal,
  from_uint8,
  masked,
  peek,
  shuffle,
  stack,
  take,
  to_uint8,
)
from mnemonics_jax.bilevel_unroll import (
  check,
  hypergradient,
  imprint,
  unroll,
)
from mnemonics_jax.types import Batch, Exemplars, PyTree, Variables

__all__ = [
  "Batch",
  "BilevelConfig",
  "BilevelResult",
  "BilevelState",
  "Exemplars",
  "Features",
  "History",
  "HypergradientCheck",
  "MemoryEstimate",
  "adjust_exemplars",
  "check_hypergradient",
  "device_bytes",
  "estimate_memory",
  "from_uint8",
  "hypergradient",
  "imprint",
  "init_state",
  "optimize_exemplars",
  "step_bytes",
  "to_uint8",
  "unroll",
]

_CHUNK = 256  # images that pass the frozen backbone at once
# Long epochs return to the host about this often.
_SECONDS_PER_CALL = 1.0


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


class History(NamedTuple):
  """What the meta loop measured, one entry per epoch.

  Distances are taken between what the frozen model makes of the exemplars and
  of their initial images: features if the config has `features_fn`, logits
  otherwise.

  Attributes:
    loss: meta loss, mean over the steps of the epoch.
    clipped: share of pixel moves cut by the pixel box or the trust region.
    displacement: mean absolute change of a pixel in grey levels (1/255).
    cosine: mean of 1 − cos(f, f_initial).
    euclidean: mean of ‖f − f_initial‖.
  """

  loss: Float[np.ndarray, " epochs"]
  clipped: Float[np.ndarray, " epochs"]
  displacement: Float[np.ndarray, " epochs"]
  cosine: Float[np.ndarray, " epochs"]
  euclidean: Float[np.ndarray, " epochs"]


class BilevelResult(NamedTuple):
  """Learned exemplars.

  Attributes:
    exemplars: with new images; labels and mask are what came in.
    history: the epochs this call ran; with `adjust_exemplars`, all parts in
      the order in which they moved.
    state: the last state; with `adjust_exemplars`, a tuple with one per part.
  """

  exemplars: Exemplars
  history: History
  state: Any


Callback = Callable[[int, Any, dict[str, float]], None]
"""Called after each epoch with its number, the state and its history row."""

StepCallback = Callable[[Any], None]
"""Called with the state about once a second within an epoch."""


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
    images, images, tx.init(images), jnp.int32(0), key, _no_sums()
  )


def _no_sums():
  return {"loss": jnp.float32(0), "clipped": jnp.float32(0)}


def optimize_exemplars(
  key: Array,
  exemplars: Exemplars,
  variables: Variables,
  data: Batch | Exemplars | Features | Iterable,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  outer_tx: optax.GradientTransformation | None = None,
  state: BilevelState | None = None,
  callback: Callback | None = None,
  step_callback: StepCallback | None = None,
  active: Bool[Array, " classes"] | None = None,
  starts: Variables | None = None,
  inner_data: Batch | Features | None = None,
) -> BilevelResult:
  """Learns exemplars: E ← E − β ∇_E L_c(Θ'(E); V), Eq. 8.

  Called again with arrays of the same shapes and the same functions and config,
  it runs the program compiled before.

  Args:
    key: root of all randomness of the run.
    exemplars: E, float images in [0, 1]; masked rows never move.
    variables: Θ, where the base level starts.
    data: V. Arrays (images, labels[, mask]) stay on the device and are drawn in
      shuffled order, each epoch anew; cached `Features` likewise; an iterator
      gives one batch per meta step. On features, images of V pass the backbone
      once, before the first step.
    apply_fn: `(variables, images) -> logits`; may be left out when the config
      has `features_fn` and `head_fn`.
    config: the settings.
    outer_tx: any optax transformation, instead of the one the config describes.
    state: a state of an earlier call, to continue it; `key` is then ignored,
      and an iterator must stand where it stood.
    callback: called after each epoch with its number, the state, the metrics.
    step_callback: called with the state about once a second within an epoch;
      with an iterator, which cannot be entered in its middle, never.
    active: classes that compete in the softmax; None is all of them.
    starts: `variables` stacked along a new first axis (late checkpoints,
      drifted copies); the base level starts from one of them, drawn per step.
    inner_data: see `unroll`.

  Returns:
    The exemplars with their history and state.
  """
  config = config.resolve()
  stream = None
  if not isinstance(data, tuple):
    data, stream = peek(data, config)
  valid = as_data(data)
  check(exemplars, variables, valid, apply_fn, config, active, inner_data)
  check_starts(starts, variables, valid)
  model = dict(apply_fn=apply_fn, config=config)
  real = masked(exemplars)
  valid = masked(valid)
  # Batch statistics belong to a batch, several starts to several backbones.
  one_backbone = config.batch_norm == "frozen" and starts is None
  cacheable = config.on_features and one_backbone and stream is None
  if cacheable and isinstance(valid, Exemplars):
    valid = Features(_embed(variables, valid.images, **model), *valid[1:])

  size = min(config.batch_size or 1, len(valid.labels))
  steps = config.steps_per_epoch or -(-len(valid.labels) // size)
  if state is None:
    state = init_state(key, exemplars, config, outer_tx)
  elif state.images.shape != exemplars.images.shape:
    raise ValueError(
      f"state holds images {state.images.shape}, exemplars "
      f"{exemplars.images.shape}: they do not belong to the same run."
    )
  reference = _embed(variables, state.initial, **model)
  meta_steps = functools.partial(
    _meta_steps,
    outer_tx=outer_tx,
    steps=steps,
    size=None if stream is not None else size,
    **model,
  )

  now, rows = state, []
  pace = 1 if stream is None else steps
  while (done := int(now.step)) < config.epochs * steps:
    epoch, first = divmod(done, steps)
    stop = min(first + pace, steps)
    if stream is not None:
      valid = stack(itertools.islice(stream, steps), steps)
    began = time.perf_counter()
    now, finite = meta_steps(
      now, stop - first, real, variables, starts, valid, active, inner_data
    )
    if not finite:
      raise FloatingPointError(
        f"Learning exemplars diverged in epoch {epoch}, steps {first} to {stop}"
        f" (meta loss {float(now.sums['loss']) / stop:g}). A smaller inner_lr"
        " or fewer inner_steps usually help; Adam as inner optimiser needs"
        " eps_root > 0."
      )
    if stream is None:
      seconds = time.perf_counter() - began
      pace = max(1, int(_SECONDS_PER_CALL * (stop - first) / seconds))
      pace = devices.agree(pace)
    if stop < steps:
      if step_callback is not None:
        step_callback(now)
      continue
    row = _measure(now, real, variables, reference, steps, **model)
    rows.append({name: float(value) for name, value in row.items()})
    now = now._replace(sums=_no_sums())
    if callback is not None:
      callback(epoch, now, rows[-1])
  history = History(
    **{name: np.array([row[name] for row in rows]) for name in History._fields}
  )
  return BilevelResult(exemplars._replace(images=now.images), history, now)


def adjust_exemplars(
  key: Array,
  exemplars: Exemplars,
  variables: Variables,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  parts: int = 2,
  outer_tx: optax.GradientTransformation | None = None,
  state: tuple[BilevelState, ...] | None = None,
  callback: Callback | None = None,
  step_callback: StepCallback | None = None,
  **kwargs,
) -> BilevelResult:
  """Adjusts old exemplars, whose data are gone, with each other: Eq. 10.

      A ← A − β₂ ∇_A L_c(Θ'(A); B),   B ← B − β₂ ∇_B L_c(Θ'(B); A)

  A moves through a whole run of Eq. 8 while B stands still, then B. The split is
  class-balanced: exemplars of a class go to the parts in turn, in the order in
  which they are stored. The other arguments are those of `optimize_exemplars`.

  Args:
    parts: number of parts; each moves once, validated by all the others.
    state: one state per part; to continue, pass it with the exemplars and the
      key of the first call.
    **kwargs: more keywords of `optimize_exemplars`.
  """
  rows, real = deal(exemplars, parts)
  # Parts are put together on the host: their sizes change with the memory, and
  # the device would compile a program for each.
  images, labels = np.array(exemplars.images), np.asarray(exemplars.labels)

  def put(part, values):
    own = real[part]
    images[rows[part][own]] = np.asarray(values)[own]

  def subset(parts):
    chosen = rows[parts].reshape(-1)
    arrays = images[chosen], labels[chosen], real[parts].reshape(-1)
    return Exemplars(*map(jnp.asarray, arrays))

  keys = [jax.random.fold_in(key, part) for part in range(parts)]
  states = list(
    state
    or (
      init_state(keys[part], subset([part]), config, outer_tx)
      for part in range(parts)
    )
  )
  for part, started in enumerate(states):
    put(part, started.images)
  histories = []
  for part in range(parts):

    def together(moving, part=part):
      return (*states[:part], moving, *states[part + 1 :])

    def after_epoch(epoch, moving, metrics, part=part, together=together):
      if callback is not None:
        callback(part * config.epochs + epoch, together(moving), metrics)

    def after_step(moving, together=together):
      if step_callback is not None:
        step_callback(together(moving))

    result = optimize_exemplars(
      keys[part],
      subset([part]),
      variables,
      subset([other for other in range(parts) if other != part]),
      apply_fn=apply_fn,
      config=config,
      outer_tx=outer_tx,
      state=states[part],
      callback=after_epoch,
      step_callback=after_step,
      **kwargs,
    )
    states[part] = result.state
    put(part, result.exemplars.images)
    histories.append(result.history)
  history = History(*map(np.concatenate, zip(*histories, strict=True)))
  adjusted = exemplars._replace(images=jnp.asarray(images))
  return BilevelResult(adjusted, history, (*states,))


@functools.partial(
  jax.jit, static_argnames=("apply_fn", "config", "outer_tx", "steps", "size")
)
def _meta_steps(
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
      rows, counted = devices.split((rows, counted))
      batch = type(valid)(valid[0][rows], valid.labels[rows], counted)
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
def _measure(
  state, exemplars, variables, reference, steps, *, apply_fn, config
):
  """The history row of an epoch of `steps` that has just ended."""
  images_mask = _like(exemplars.mask, state.images)
  moved = jnp.abs(state.images - state.initial)
  features = _embed(variables, state.images, apply_fn=apply_fn, config=config)
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
def _embed(variables, images, *, apply_fn, config):
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
