"""One training step, against the same written out by hand."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import training
from support.training import IMAGES, LABELS, MODEL

from mnemonics_jax import methods
from mnemonics_jax.nn import transfer
from mnemonics_jax.phase import sgd
from mnemonics_jax.types import Batch

STEP = jax.jit(sgd.train_step)


@pytest.fixture(scope="module")
def start():
  return MODEL.init(jax.random.key(0))


def test_a_step_is_that_of_optax(start):
  """Twice, so that momentum counts."""
  batches = [Batch(IMAGES[:8], LABELS[:8]), Batch(IMAGES[8:16], LABELS[8:16])]
  task, losses = training.task(start), []
  state = sgd.init_training(task, start)
  for batch in batches:
    state, metrics = STEP(state, batch, task=task)
    losses.append(float(metrics["loss"]))
  variables, expected = training.by_hand(start, batches)
  training.assert_close(state.variables, variables)
  np.testing.assert_allclose(losses, expected, rtol=1e-4)
  assert losses[0] != losses[1]


def test_a_step_is_a_function_of_its_arguments(start):
  task, batch = training.task(start), Batch(IMAGES[:8], LABELS[:8])
  state = sgd.init_training(task, start)
  before = jax.tree.map(np.array, state)
  one, two = (STEP(state, batch, task=task) for _ in range(2))
  training.assert_equal(one, two)
  training.assert_equal(state, before)
  assert (
    training.head(one[0].variables)[2] != training.head(state.variables)[2]
  ).any()


def test_a_step_compiles_once_for_equal_tasks(start):
  # Counted by a function of its own: jit shares one cache among all callers.
  step = jax.jit(chex.assert_max_traces(n=1)(sgd.train_step))
  state = sgd.init_training(training.task(start), start)
  stored = step(state, Batch(IMAGES[:8], LABELS[:8]), task=training.task(start))
  step(state, Batch(IMAGES[8:16], LABELS[8:16]), task=training.task(start))
  # Floats serve as well as stored pixels.
  floats = Batch(jnp.float32(IMAGES[:8]) / 255, LABELS[:8])
  training.assert_close(STEP(state, floats, task=training.task(start)), stored)


def test_the_state_is_one_pytree_that_a_loop_carries(start):
  task = training.task(start)
  state = sgd.init_training(task, start)
  after, metrics = STEP(state, Batch(IMAGES[:8], LABELS[:8]), task=task)
  shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert shapes(after) == shapes(state)
  assert all(metric.shape == () for metric in metrics.values())
  batches = Batch(IMAGES[:16].reshape(2, 8, 8, 8, 3), LABELS[:16].reshape(2, 8))
  body = lambda state, batch: sgd.train_step(state, batch, task=task)
  scanned, losses = jax.lax.scan(body, state, batches)
  second, _ = STEP(after, Batch(IMAGES[8:16], LABELS[8:16]), task=task)
  training.assert_close(scanned, second)
  assert losses["loss"].shape == (2,)


class _Still(methods.Method):
  """No loss at all: what moves is moved by weight decay."""

  name = "still"

  def loss(self, student, teacher, labels, classes):
    return 0.0 * student.logits.sum(), {}


def test_weight_decay_pulls_transfer_to_the_identity(start):
  identity = transfer.init(start["params"]["backbone"], "out")
  moved = jax.tree.map(lambda x: x + 2.0, identity)  # Scales 3, shifts 2.
  task = training.task(None, method=_Still(), scope="transfer")
  state = sgd.init_training(task, transfer.apply(start, moved))
  state, _ = STEP(state, Batch(IMAGES[:8], LABELS[:8]), task=task)
  # 3 − 0.1 · 5e-4 · (3 − 1), and 2 − 0.1 · 5e-4 · 2.
  for path, leaf in jax.tree.leaves_with_path(state.variables["transfer"]):
    expected = {"scale": 2.9999, "shift": 1.9999}[path[-1].key]
    np.testing.assert_allclose(leaf, expected, rtol=1e-6)
