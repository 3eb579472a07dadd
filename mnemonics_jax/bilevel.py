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
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np
import optax

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
  stack,
  to_uint8,
)
from mnemonics_jax.bilevel_meta import (
  BilevelState,
  embed_all,
  init_state,
  measure,
  meta_steps,
  no_sums,
)
from mnemonics_jax.bilevel_unroll import (
  check,
  hypergradient,
  imprint,
  unroll,
)
from mnemonics_jax.pace import Pace
from mnemonics_jax.types import Batch, Exemplars, Variables

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
    valid = Features(embed_all(variables, valid.images, **model), *valid[1:])

  size = min(config.batch_size or 1, len(valid.labels))
  steps = config.steps_per_epoch or -(-len(valid.labels) // size)
  if state is None:
    state = init_state(key, exemplars, config, outer_tx)
  elif state.images.shape != exemplars.images.shape:
    raise ValueError(
      f"state holds images {state.images.shape}, exemplars "
      f"{exemplars.images.shape}: they do not belong to the same run."
    )
  reference = embed_all(variables, state.initial, **model)
  advance = functools.partial(
    meta_steps,
    outer_tx=outer_tx,
    steps=steps,
    size=None if stream is not None else size,
    **model,
  )

  now, rows = state, []
  pace = Pace()
  while (done := int(now.step)) < config.epochs * steps:
    epoch, first = divmod(done, steps)
    stop = min(first + pace.steps, steps)
    if stream is not None:
      stop = steps
      valid = stack(itertools.islice(stream, steps), steps)
    began = time.perf_counter()
    now, finite = advance(
      now, stop - first, real, variables, starts, valid, active, inner_data
    )
    if not finite:
      raise FloatingPointError(
        f"Learning exemplars diverged in epoch {epoch}, steps {first} to {stop}"
        f" (meta loss {float(now.sums['loss']) / stop:g}). A smaller inner_lr,"
        " fewer inner_steps or a smaller scale σ of the head usually help; Adam"
        " as inner optimiser needs eps_root > 0."
      )
    pace.measure(stop - first, time.perf_counter() - began)
    if stop < steps:
      if step_callback is not None:
        step_callback(now)
      continue
    row = measure(now, real, variables, reference, steps, **model)
    rows.append({name: float(value) for name, value in row.items()})
    now = now._replace(sums=no_sums())
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
    state: one state per part, of an earlier call with the same exemplars, to
      continue it; `key` is then ignored.
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
