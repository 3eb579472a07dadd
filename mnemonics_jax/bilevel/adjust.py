"""Old exemplars adjusted with each other: the meta loop over parts of them."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np
import optax

from mnemonics_jax.bilevel import meta_level
from mnemonics_jax.bilevel.batches import split_parts
from mnemonics_jax.bilevel.config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.meta_level import BilevelState
from mnemonics_jax.bilevel.optimize import (
  BilevelResult,
  Callback,
  History,
  Moment,
  run_steps,
)
from mnemonics_jax.bilevel.problem import prepare
from mnemonics_jax.types import Exemplars, Variables


class _Parts:
  """Exemplars in class-balanced parts, put together on the host.

  Their sizes change with the memory, and the device would compile a program for
  each.
  """

  def __init__(self, exemplars: Exemplars, parts: int):
    self._rows, self._real = split_parts(exemplars, parts)
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
  """The states of all parts before the first meta step.

  >>> exemplars = Exemplars(jnp.ones((4, 1, 1, 1)), jnp.array([0, 0, 1, 1]))
  >>> states = init_parts(jax.random.key(0), exemplars, parts=2)
  >>> [len(state.images) for state in states]
  [2, 2]
  """
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

  >>> exemplars = Exemplars(jnp.ones((4, 1, 1, 2)), jnp.array([0, 0, 1, 1]))
  >>> states = init_parts(jax.random.key(0), exemplars)
  >>> moments = run_parts(
  ...   exemplars, {"params": {}}, states, config=BilevelConfig(epochs=2),
  ...   apply_fn=lambda variables, images: images[:, 0, 0])
  >>> [moment.epoch for moment in moments if moment.row]  # Two of each part.
  [0, 1, 2, 3]

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
  """The exemplars with the images of all parts.

  >>> exemplars = Exemplars(jnp.ones((4, 1, 1, 1)), jnp.array([0, 0, 1, 1]))
  >>> first, second = init_parts(jax.random.key(0), exemplars)
  >>> black = first._replace(images=jnp.zeros_like(first.images))
  >>> merge_parts(exemplars, (black, second)).images.ravel().tolist()
  [0.0, 1.0, 0.0, 1.0]
  """
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

  >>> apply_fn = lambda variables, x: x[:, 0, 0] @ variables["params"]["w"]
  >>> variables = {"params": {"w": jnp.zeros((2, 2))}}
  >>> labels = jnp.array([0, 0, 1, 1])  # Each class has its own channel.
  >>> old = Exemplars(0.5 * jnp.eye(2)[labels][:, None, None], labels)
  >>> result = adjust_exemplars(
  ...   jax.random.key(0), old, variables, apply_fn=apply_fn,
  ...   config=BilevelConfig(epochs=1))
  >>> moved = 255 * (result.exemplars.images - old.images)
  >>> round(moved.max().item(), 2)  # Brighter, as far as `max_change` allows.
  2.0

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
