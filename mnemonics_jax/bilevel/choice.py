"""A learned choice among real images: nothing in their pixels changes.

Every candidate has a score; of each class those with the highest count. The base
level trains a head on the features of the candidates, each weighted by how clearly
its score is among the chosen ones, and the meta level moves the scores down the
validation loss of that head:

    w_i = 1 / (1 + exp((t_c − s_i) / τ)),    s ← s − β ∇_s L_c(Θ'(w); V)

where t_c lies between the last that is chosen of a class and the first that is not.
"""

import functools
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int
import optax

from mnemonics_jax.bilevel.config import BilevelConfig
from mnemonics_jax.bilevel.data import Features, shuffle, take, with_mask
from mnemonics_jax.losses import cross_entropy
from mnemonics_jax.nn import heads
from mnemonics_jax.types import PyTree

# τ, and β: the scores of two candidates next to each other begin 1/n apart, if n
# of a class are chosen.
_SOFTNESS, _RATE = 0.1, 0.02


class Choice(NamedTuple):
  """What was chosen, and how the validation loss fell on the way.

  Attributes:
    scores: of the candidates; of each class, the highest are chosen.
    losses: of the meta steps.
  """

  scores: Float[Array, " n"]
  losses: Float[Array, " steps"]


def learn_choice(
  key: Array,
  candidates: Features,
  scores: Float[Array, " n"],
  counts: Int[Array, " classes"],
  head: PyTree,
  valid: Features,
  *,
  config: BilevelConfig,
  active: Bool[Array, " classes"] | None = None,
) -> Choice:
  """Scores of candidates, so that a head trained on the best validates well.

  Args:
    key: source of the order in which validation data come.
    candidates: features of the images to choose from.
    scores: where they start.
    counts: how many of each class are chosen.
    head: a cosine head, whose rows begin with means of the chosen.
    valid: V.
    config: resolved; `head_fn`, the inner loop, and how many steps are taken.
    active: classes that compete in the softmax; None is all of them.
  """
  steps = config.epochs * (config.steps_per_epoch or 1)
  return _learn(
    key, with_mask(candidates), scores, counts, head, with_mask(valid), active,
    steps=steps, config=config,
  )  # fmt: skip


@functools.partial(jax.jit, static_argnames=("steps", "config"))
def _learn(
  key, candidates, scores, counts, head, valid, active, *, steps, config
):
  order = shuffle(key, valid.mask)
  size = min(config.batch_size, len(valid.labels))
  tx = optax.adam(optax.cosine_decay_schedule(_RATE, max(steps, 1)))

  def loss(scores, batch):
    weights = _weights(scores, candidates, counts)
    trained = _base_level(weights, candidates, head, active, config)
    logits = config.head_fn(trained, batch.features)
    return cross_entropy(logits, batch.labels, active, batch.mask)

  def step(carry, t):
    scores, opt_state = carry
    rows, real = take(order, valid.mask, size, t)
    batch = Features(valid.features[rows], valid.labels[rows], real)
    value, grads = jax.value_and_grad(loss)(scores, batch)
    updates, opt_state = tx.update(grads, opt_state)
    return (optax.apply_updates(scores, updates), opt_state), value

  carry: Any = scores, tx.init(scores)
  carry, losses = lax.scan(step, carry, jnp.arange(steps))
  return Choice(carry[0], losses)


def _weights(scores, candidates, counts):
  """How clearly each candidate is among the chosen of its class."""
  labels = jnp.where(candidates.mask, candidates.labels, len(counts))
  rows = jnp.lexsort((-scores, labels))  # Class after class, best first.
  sizes = jnp.zeros(len(counts) + 1, jnp.int32).at[labels].add(1)
  first = jnp.cumsum(sizes) - sizes
  counts = jnp.minimum(jnp.append(counts, 0), sizes)
  at = lambda place: scores[rows[jnp.clip(place, 0, len(rows) - 1)]]
  border = (at(first + counts - 1) + at(first + counts)) / 2
  # Where all of a class are chosen, none is near the border.
  border = jnp.where(counts < sizes, border, -jnp.inf)
  border = lax.stop_gradient(jnp.where(counts > 0, border, jnp.inf))
  apart = (scores - border[labels]) / _SOFTNESS
  return jnp.where(candidates.mask, jax.nn.sigmoid(apart), 0.0)


def _base_level(weights, candidates, head, active, config):
  """The head after some steps on the weighted candidates."""
  features, labels, _ = candidates
  classes = jnp.arange(len(head["weight"]))
  member = (labels[None, :] == classes[:, None]) * weights[None, :]
  sums = member @ heads.normalize(features)
  trained = heads.imprint(head, sums, (member > 0).any(axis=1))
  tx = config.inner_optimizer or optax.sgd(config.inner_lr)

  def objective(trained):
    logits = config.head_fn(trained, features)
    if active is not None:
      logits = heads.mask_logits(logits, active)
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return (weights * losses).sum() / jnp.maximum(weights.sum(), 1e-6)

  def step(carry, _):
    trained, opt_state = carry
    updates, opt_state = tx.update(
      jax.grad(objective)(trained), opt_state, trained
    )
    return (optax.apply_updates(trained, updates), opt_state), None

  carry = trained, tx.init(trained)
  return lax.scan(step, carry, length=config.inner_steps)[0][0]
