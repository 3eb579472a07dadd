"""A tiny model, images, and what it is trained for: with a teacher."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from mnemonics_jax import methods
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase import Schedule, Stage, sgd
from mnemonics_jax.phase.feed import make_pool

METHOD = methods.LUCIR()
MODEL = Model(networks.resnet8(width=4, image_shape=(8, 8, 3)), METHOD.head, 5)
SCHEDULE = Schedule(epochs=2, learning_rate=0.1, milestones=(1,), batch_size=8)
CLASSES = methods.Classes(
  jnp.array([True, True, False, False, False]),
  jnp.array([False, False, True, True, False]),
)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 4, 20).astype(np.int32)


def task(teacher, **options):
  fields: dict[str, Any] = dict(
    classes=CLASSES,
    rows=METHOD.trainable_rows(CLASSES),
    teacher=teacher,
    model=MODEL,
    method=METHOD,
    schedule=SCHEDULE,
  )
  return sgd.Task(**(fields | options))


def pool():
  return make_pool(IMAGES, LABELS, 32)


def fit(variables, *, stage=Stage(), feed=None, **options):
  asked = task(**(dict(teacher=variables) | options))
  return sgd.fit(jax.random.key(1), variables, feed or pool(), asked, stage)


def head(variables):
  return np.asarray(variables["params"]["head"]["weight"])


def assert_equal(one, two):
  jax.tree.map(np.testing.assert_array_equal, one, two)


def assert_close(one, two):
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
  jax.tree.map(close, one, two)


def by_hand(start, batches, rates=None):
  """SGD with momentum and L2 in optax, some rows of the head held.

  Args:
    start: where it begins.
    batches: images and labels of each step.
    rates: of each step; 0.1 if they are not given.
  """
  rates = iter(rates or [0.1] * len(batches))
  tx = optax.chain(optax.add_decayed_weights(5e-4), optax.trace(0.9))
  held = np.asarray(METHOD.trainable_rows(CLASSES))[:, None]
  variables, state = start, tx.init(start["params"])

  @jax.jit
  def gradient(params, variables, images, labels):
    def loss(params):
      new = variables | {"params": params}
      student, stats = MODEL.apply(new, images, train=True)
      teacher, _ = MODEL.apply(start, images)
      return METHOD.loss(student, teacher, labels, CLASSES)[0], stats

    return jax.value_and_grad(loss, has_aux=True)(params)

  losses = []
  for images, labels in batches:
    images = jnp.asarray(images, jnp.float32) / 255
    (loss, stats), grads = gradient(
      variables["params"], variables, images, labels
    )
    moves: Any
    moves, state = tx.update(grads, state, variables["params"])
    moves["head"]["weight"] *= held
    rate = next(rates)
    moves = jax.tree.map(lambda move, rate=rate: -rate * move, moves)
    params = optax.apply_updates(variables["params"], moves)
    variables = {"params": params, "batch_stats": stats}
    losses.append(float(loss))
  return variables, losses
