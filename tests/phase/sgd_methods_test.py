"""What a method brings to a step of SGD: its teacher's layers, its noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import journals

from mnemonics_jax import methods
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase import Schedule, Stage, sgd
from mnemonics_jax.phase.feed import make_pool
from mnemonics_jax.types import Batch

NETWORK = networks.resnet8(width=4, image_shape=(8, 8, 3))
MODEL = Model(NETWORK, methods.LwF().head, 5)
CLASSES = methods.Classes(jnp.arange(5) < 2, jnp.arange(5) // 2 == 1)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 4, 20).astype(np.int32)
BATCH = Batch(IMAGES[:8], LABELS[:8])
STEP = jax.jit(sgd.train_step)


def _task(method, teacher=None):
  schedule = Schedule(epochs=2, milestones=(1,), batch_size=8)
  return sgd.Task(
    CLASSES, CLASSES.seen, teacher,
    model=MODEL, method=method, schedule=schedule,
  )  # fmt: skip


def _head(variables):
  return np.asarray(variables["params"]["head"]["weight"])


def test_the_teacher_speaks_through_the_layers_of_its_method():
  """BiC's α and β of old classes count in what is distilled, by NumPy."""
  method = methods.BiC()
  student, teacher = (
    method.begin_run(MODEL.init(jax.random.key(seed))) for seed in (0, 1)
  )
  alpha, beta = np.array([3.0, 0.5]), np.array([2.0, -1.0])
  layers = teacher["bias_layers"]
  teacher["bias_layers"] = {
    "alpha": layers["alpha"].at[:2].set(alpha),
    "beta": layers["beta"].at[:2].set(beta),
  }
  task = _task(method, teacher)
  _, metrics = STEP(sgd.init_training(task, student), BATCH, task=task)
  images = jnp.float32(BATCH.images) / 255
  raw = jax.jit(lambda v: MODEL.apply(v, images)[0].logits)(teacher)
  train = jax.jit(lambda v: MODEL.apply(v, images, True)[0].logits)(student)
  softmax = lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)
  target = softmax((alpha * np.asarray(raw, float)[:, :2] + beta) / 2)
  log_probs = np.log(softmax(np.asarray(train, float)[:, :2] / 2))
  expected = -(target * log_probs).sum(-1).mean()
  assert float(metrics["distillation"]) == pytest.approx(expected, rel=1e-3)


def test_noise_on_gradients_is_part_of_where_a_fit_is():
  """It moves what may move, and is continued to the bit."""
  begin = MODEL.init(jax.random.key(0))
  pool, key = make_pool(IMAGES, LABELS, 32), jax.random.key(1)
  fit = lambda noise, stage=Stage(): sgd.fit(
    key, begin, pool, _task(methods.E2E(noise=noise)), stage
  )
  quiet, whole = fit(0.0), fit(50.0)
  assert np.abs(_head(whole)[2] - _head(quiet)[2]).min() > 1e-4
  np.testing.assert_array_equal(_head(whole)[4], _head(begin)[4])
  again, _ = journals.in_pieces(
    lambda journal: fit(50.0, Stage(journal=journal))
  )
  jax.tree.map(np.testing.assert_array_equal, again, whole)


def test_noise_on_gradients_follows_the_key():
  task, begin = _task(methods.E2E()), MODEL.init(jax.random.key(0))
  one, same, other = (
    _head(STEP(state, BATCH, task=task)[0].variables)
    for state in (
      sgd.init_training(task, begin, jax.random.key(seed)) for seed in (1, 1, 2)
    )
  )
  np.testing.assert_array_equal(one, same)
  assert (one[2:4] != other[2:4]).all()
