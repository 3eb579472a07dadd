"""The convenient loops over `init`, `steps` and `measure`.

`optimize_exemplars` learns new exemplars, `adjust_exemplars` old ones with each other.
"""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import itertools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import numpy as np
import optax

from mnemonics_jax.bilevel import meta_level
from mnemonics_jax.bilevel.config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.data import Data, peek, stack
from mnemonics_jax.bilevel.meta_level import BilevelState, Problem, prepare
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel.prefetch import Pace
from mnemonics_jax.types import Exemplars, Variables


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

  @classmethod
  def of(cls, rows: list[dict[str, float]]) -> "History":
    """The history whose epochs these rows of `measure` are."""
    return cls(*(np.array([row[name] for row in rows]) for name in cls._fields))


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


class Moment(NamedTuple):
  """The meta loop between two calls of its compiled program.

  Attributes:
    state: from which the loop can continue.
    epoch: the running epoch, or the one that has just ended.
    row: its row of the history if it has just ended, else None.
  """

  state: Any
  epoch: int
  row: dict[str, float] | None


Callback = Callable[[int, Any, dict[str, float]], None]
"""Called after each epoch with its number, the state and its history row."""


def run_steps(
  problem: Problem,
  state: BilevelState,
  batches: Iterator[Any] | None = None,
) -> Iterator[Moment]:
  """Takes the meta steps that are left, and stops by about once a second.

  Args:
    problem: made by `prepare`.
    state: of `init`, or of an earlier moment.
    batches: of V, one per step, if the problem was prepared so. They cannot be
      entered in the middle of an epoch, so moments are whole epochs then.
  """
  reference = meta_level.initial_features(problem, state)
  pace = Pace()
  while (done := int(state.step)) < problem.total_steps:
    epoch, count = done // problem.steps, pace.steps
    if batches is not None:
      count = problem.steps
      valid = stack(itertools.islice(batches, count), count)
      problem = dataclasses.replace(problem, valid=valid)
    with pace.timing(min(count, problem.steps - done % problem.steps)):
      state = meta_level.steps(problem, state, count)
    row = None
    if int(state.step) % problem.steps == 0:
      row = meta_level.measure(problem, state, reference)
    yield Moment(state, epoch, row)


def optimize_exemplars(
  key: Array,
  exemplars: Exemplars,
  variables: Variables,
  data: Data | Iterable[Data],
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  outer_tx: optax.GradientTransformation | None = None,
  state: BilevelState | None = None,
  callback: Callback | None = None,
  active: Bool[Array, " classes"] | None = None,
  starts: Variables | None = None,
  inner_data: Data | None = None,
) -> BilevelResult:
  """Learns exemplars: E ← E − β ∇_E L_c(Θ'(E); V), Eq. 9.

  Called again with arrays of the same shapes and the same functions and config,
  it runs the program compiled before. The module's docstring has an example.

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
      To look in between, use `prepare`, `init` and `run_steps`.
    active: classes that compete in the softmax; None is all of them.
    starts: `variables` stacked along a new first axis (late checkpoints,
      drifted copies); the base level starts from one of them, drawn per step.
    inner_data: see `unroll`.

  Returns:
    The exemplars with their history and state.
  """
  first: Any = data
  batches = None
  if not isinstance(data, tuple):
    first, batches = peek(data, config)
  problem = prepare(
    exemplars, variables, first, apply_fn=apply_fn, config=config,
    outer_tx=outer_tx, active=active, starts=starts, inner_data=inner_data,
    batch_per_step=batches is not None,
  )  # fmt: skip
  now = state or meta_level.init(key, exemplars, config, outer_tx)
  if now.images.shape != exemplars.images.shape:
    raise UserError(
      "state",
      f"state holds images {now.images.shape}, exemplars"
      f" {exemplars.images.shape}, so they are not of one optimisation",
      "continue with the exemplars that it began with",
    )
  rows = []
  for moment in run_steps(problem, now, batches):
    now, epoch, row = moment
    if row is not None:
      rows.append(row)
      if callback is not None:
        callback(epoch, now, row)
  learned = exemplars._replace(images=now.images)
  return BilevelResult(learned, History.of(rows), now)


class _Parts:
  """Exemplars in class-balanced parts, put together on the host.

  Their sizes change with the memory, and the device would compile a program for
  each.
  """

  def __init__(self, exemplars: Exemplars, parts: int):
    self._rows, self._real = _split_parts(exemplars, parts)
    self._labels = np.asarray(exemplars.labels)
    self.images = np.array(exemplars.images)

  def put(self, part: int, images: Array) -> None:
    """Replaces the images of one part."""
    real = self._real[part]
    self.images[self._rows[part][real]] = np.asarray(images)[real]

  def subset(self, parts: list[int]) -> Exemplars:
    """The exemplars of some parts, in the same shape for every memory."""
    rows = self._rows[parts].reshape(-1)
    arrays = self.images[rows], self._labels[rows], self._real[parts].ravel()
    return Exemplars(*map(jnp.asarray, arrays))


def init_parts(
  key: Array,
  exemplars: Exemplars,
  config: BilevelConfig = DEFAULT,
  parts: int = 2,
  outer_tx: optax.GradientTransformation | None = None,
) -> tuple[BilevelState, ...]:
  """The states of all parts before the first meta step."""
  split = _Parts(exemplars, parts)
  return tuple(
    meta_level.init(
      jax.random.fold_in(key, part), split.subset([part]), config, outer_tx
    )
    for part in range(parts)
  )


def run_parts(
  exemplars: Exemplars,
  variables: Variables,
  states: tuple[BilevelState, ...],
  **options: Any,
) -> Iterator[Moment]:
  """Each part in turn through the meta loop, validated by the others.

  Moments hold the states of all parts, and count epochs over them.

  Args:
    exemplars: all parts, as they were in `init_parts`.
    variables: Θ.
    states: of `init_parts`, or of an earlier moment.
    **options: those of `prepare`.
  """
  split = _Parts(exemplars, len(states))
  for part, state in enumerate(states):
    split.put(part, state.images)
  for part in range(len(states)):
    others = [other for other in range(len(states)) if other != part]
    problem = prepare(
      split.subset([part]), variables, split.subset(others), **options
    )
    before = part * problem.config.epochs
    for moment in run_steps(problem, states[part]):
      states = (*states[:part], moment.state, *states[part + 1 :])
      yield Moment(states, before + moment.epoch, moment.row)
    split.put(part, states[part].images)


def merge_parts(
  exemplars: Exemplars, states: tuple[BilevelState, ...]
) -> Exemplars:
  """The exemplars with the images of all parts."""
  split = _Parts(exemplars, len(states))
  for part, state in enumerate(states):
    split.put(part, state.images)
  return exemplars._replace(images=jnp.asarray(split.images))


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
  **kwargs: Any,
) -> BilevelResult:
  """Adjusts old exemplars, whose data are gone, with each other: Eq. 10.

      A ← A − β₂ ∇_A L_c(Θ'(A); B),   B ← B − β₂ ∇_B L_c(Θ'(B); A)

  A moves through a whole run of Eq. 9 while B stands still, then B. The split is
  class-balanced: exemplars of a class go to the parts in turn, in the order in
  which they are stored. The other arguments are those of `optimize_exemplars`.

  Args:
    parts: number of parts; each moves once, validated by all the others.
    state: one state per part, of an earlier call with the same exemplars, to
      continue it; `key` is then ignored.
    **kwargs: more keywords of `optimize_exemplars`.
  """
  states = state or init_parts(key, exemplars, config, parts, outer_tx)
  model = dict(apply_fn=apply_fn, config=config, outer_tx=outer_tx)
  rows = []
  for moment in run_parts(exemplars, variables, states, **model, **kwargs):
    states = moment.state
    if moment.row is not None:
      rows.append(moment.row)
      if callback is not None:
        callback(moment.epoch, states, moment.row)
  return BilevelResult(merge_parts(exemplars, states), History.of(rows), states)


def _split_parts(exemplars, parts):
  """Class-balanced parts: their rows [parts, m] and which of them are real."""
  labels = np.asarray(exemplars.labels)
  mask = exemplars.mask
  rows = np.arange(len(labels)) if mask is None else np.flatnonzero(mask)
  if parts != int(parts) or not 2 <= parts <= len(rows):
    raise UserError(
      "parts",
      f"parts={parts} of {len(rows)} exemplars cannot be made",
      "it must be a whole number, each part needs an exemplar, and one other part"
      " to be validated by",
    )
  rows = rows[np.argsort(labels[rows], kind="stable")]
  # Sized by all rows, padding included: the shape outlives a growing memory.
  size = -(-len(labels) // parts)
  dealt = np.zeros((parts, size), np.int32)
  real = np.zeros((parts, size), bool)
  for part in range(parts):
    chosen = rows[part::parts]
    dealt[part, : len(chosen)] = chosen
    real[part, : len(chosen)] = True
  return dealt, real
