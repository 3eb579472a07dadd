"""The training step and its loop, against the same written out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support import journals

from mnemonics_jax import methods
from mnemonics_jax.nn import augment, networks, transfer
from mnemonics_jax.nn.model import Model
from mnemonics_jax.parallel import pace
from mnemonics_jax.phase import Schedule, Stage, sgd
from mnemonics_jax.phase.pool import make_pool
from mnemonics_jax.types import Batch

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
STEP = jax.jit(sgd.train_step)


@pytest.fixture(scope="module")
def start():
  return MODEL.init(jax.random.key(0))


def _task(teacher, **options):
  fields = dict(
    classes=CLASSES,
    rows=METHOD.trainable_rows(CLASSES),
    teacher=teacher,
    model=MODEL,
    method=METHOD,
    schedule=SCHEDULE,
  )
  return sgd.Task(**(fields | options))


def _fit(variables, *, stage=Stage(), pool=None, **options):
  task = _task(**(dict(teacher=variables) | options))
  pool = pool or make_pool(IMAGES, LABELS, 32)
  return sgd.fit(jax.random.key(1), variables, pool, task, stage)


@pytest.fixture(scope="module")
def trained(start):
  return _fit(start)


def _head(variables):
  return np.asarray(variables["params"]["head"]["weight"])


def _assert_equal(one, two):
  jax.tree.map(np.testing.assert_array_equal, one, two)


def _assert_close(one, two):
  close = lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5)
  jax.tree.map(close, one, two)


def _by_hand(start, batches):
  """SGD with momentum and L2 in optax, some rows of the head held."""
  tx = optax.chain(
    optax.add_decayed_weights(5e-4), optax.trace(0.9), optax.scale(-0.1)
  )
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
    updates, state = tx.update(grads, state, variables["params"])
    updates["head"]["weight"] *= held
    params = optax.apply_updates(variables["params"], updates)
    variables = {"params": params, "batch_stats": stats}
    losses.append(float(loss))
  return variables, losses


# One step.


def test_a_step_is_that_of_optax(start):
  """Twice, so that momentum counts."""
  batches = [Batch(IMAGES[:8], LABELS[:8]), Batch(IMAGES[8:16], LABELS[8:16])]
  task, losses = _task(start), []
  state = sgd.init_training(task, start)
  for batch in batches:
    state, metrics = STEP(state, batch, task=task)
    losses.append(float(metrics["loss"]))
  variables, expected = _by_hand(start, batches)
  _assert_close(state.variables, variables)
  np.testing.assert_allclose(losses, expected, rtol=1e-4)
  assert losses[0] != losses[1]


def test_a_step_is_a_function_of_its_arguments(start):
  task, batch = _task(start), Batch(IMAGES[:8], LABELS[:8])
  state = sgd.init_training(task, start)
  before = jax.tree.map(np.array, state)
  one, two = (STEP(state, batch, task=task) for _ in range(2))
  _assert_equal(one, two)
  _assert_equal(state, before)
  assert (_head(one[0].variables)[2] != _head(state.variables)[2]).any()


def test_a_step_compiles_once_for_equal_tasks(start):
  step = jax.jit(sgd.train_step)
  state = sgd.init_training(_task(start), start)
  stored = step(state, Batch(IMAGES[:8], LABELS[:8]), task=_task(start))
  step(state, Batch(IMAGES[8:16], LABELS[8:16]), task=_task(start))
  assert step._cache_size() == 1
  # Floats serve as well as stored pixels.
  floats = Batch(jnp.float32(IMAGES[:8]) / 255, LABELS[:8])
  _assert_close(step(state, floats, task=_task(start)), stored)


def test_the_state_is_one_pytree_that_a_loop_carries(start):
  task = _task(start)
  state = sgd.init_training(task, start)
  after, metrics = STEP(state, Batch(IMAGES[:8], LABELS[:8]), task=task)
  shapes = lambda tree: jax.tree.map(lambda x: (x.shape, x.dtype), tree)
  assert shapes(after) == shapes(state)
  assert all(metric.shape == () for metric in metrics.values())
  batches = Batch(IMAGES[:16].reshape(2, 8, 8, 8, 3), LABELS[:16].reshape(2, 8))
  body = lambda state, batch: sgd.train_step(state, batch, task=task)
  scanned, losses = jax.lax.scan(body, state, batches)
  second, _ = STEP(after, Batch(IMAGES[8:16], LABELS[8:16]), task=task)
  _assert_close(scanned, second)
  assert losses["loss"].shape == (2,)


class _Still(methods.Method):
  """No loss at all: what moves is moved by weight decay."""

  name = "still"

  def loss(self, student, teacher, labels, classes):
    return 0.0 * student.logits.sum(), {}


def test_weight_decay_pulls_transfer_to_the_identity(start):
  identity = transfer.init(start["params"]["backbone"], "out")
  moved = jax.tree.map(lambda x: x + 2.0, identity)  # Scales 3, shifts 2.
  task = _task(None, method=_Still(), scope="transfer")
  state = sgd.init_training(task, transfer.apply(start, moved))
  state, _ = STEP(state, Batch(IMAGES[:8], LABELS[:8]), task=task)
  # 3 − 0.1 · 5e-4 · (3 − 1), and 2 − 0.1 · 5e-4 · 2.
  for path, leaf in jax.tree.leaves_with_path(state.variables["transfer"]):
    expected = {"scale": 2.9999, "shift": 1.9999}[path[-1].key]
    np.testing.assert_allclose(leaf, expected, rtol=1e-6)


# Many steps.


def test_fit_equals_a_plain_loop(start):
  schedule = dataclasses.replace(SCHEDULE, epochs=1, milestones=())
  fitted = _fit(start, schedule=schedule)
  key = jax.random.fold_in(jax.random.key(1), 0)
  draws = np.asarray(jax.random.uniform(key, (32,)))[:20]
  order = np.argsort(draws, kind="stable")
  # 20 images in batches of 8: the last batch wraps to the first four.
  picks = [order[np.arange(8 * i, 8 * i + 8) % 20] for i in range(3)]
  expected, _ = _by_hand(start, [(IMAGES[p], LABELS[p]) for p in picks])
  _assert_close(fitted, expected)


def test_old_and_unseen_rows_are_bitwise_constant(start, trained):
  """With momentum and weight decay on, through two epochs."""
  before, after = _head(start), _head(trained)
  for row in (0, 1, 4):
    np.testing.assert_array_equal(after[row], before[row])
  assert (after[2:4] != before[2:4]).all()


def test_the_start_is_left_intact(start, trained):
  del trained
  assert all(not leaf.is_deleted() for leaf in jax.tree.leaves(start))


def test_padding_never_matters(start, trained):
  """More room in the pool changes the order drawn, not what is learned from."""
  pool = make_pool(IMAGES, LABELS, 32)
  poisoned = pool._replace(
    images=pool.images.at[20:].set(255), labels=pool.labels.at[20:].set(3)
  )
  _assert_equal(_fit(start, pool=poisoned), trained)


def test_the_pace_of_reports_never_matters(start, trained, monkeypatch):
  monkeypatch.setattr(pace, "SECONDS_PER_CALL", 0.0)
  reports = []
  again = _fit(start, stage=Stage(report=reports.append))
  _assert_equal(again, trained)
  assert [(r.epoch, r.step) for r in reports] == [
    (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3),
  ]  # fmt: skip
  ends = [r for r in reports if r.metrics is not None]
  assert [r.step for r in ends] == [3, 3]
  assert [r.metrics["lr"] for r in ends] == pytest.approx([0.1, 0.01])
  assert {"loss", "accuracy", "less_forget"} <= set(ends[0].metrics)


def test_a_fit_continues_from_every_moment(start, trained):
  """Nothing is told twice, and the metrics are those of whole epochs."""
  whole, pieces = [], []
  _fit(start, stage=Stage(report=whole.append))
  again, journal = journals.in_pieces(
    lambda journal: _fit(
      start, stage=Stage(report=pieces.append, journal=journal)
    )
  )
  _assert_equal(again, trained)
  ends = lambda reports: [r for r in reports if r.metrics is not None]
  assert ends(pieces) == ends(whole)
  assert journal.offers == ["train"] * 6  # Two epochs of three steps.


@dataclasses.dataclass(frozen=True)
class _Watched(augment.NoAugmentation):
  """Notes which images come by."""

  note: object = dataclasses.field(compare=False)

  def __call__(self, key, images):
    jax.debug.callback(self.note, images)
    return images


def test_every_image_is_seen_in_an_epoch(start):
  seen = []
  note = lambda images: seen.append([x.tobytes() for x in np.asarray(images)])
  _fit(start, augment=_Watched(note))
  jax.effects_barrier()
  all_images = {image.tobytes() for image in IMAGES}
  assert [len(batch) for batch in seen] == [8] * 6
  for epoch in (seen[:3], seen[3:]):
    assert set().union(*epoch) == all_images
  assert seen[0] != seen[3]


@dataclasses.dataclass(frozen=True)
class _Keys(augment.NoAugmentation):
  """Notes what randomness it is given."""

  note: object = dataclasses.field(compare=False)

  def __call__(self, key, images):
    jax.debug.callback(self.note, jax.random.key_data(key))
    return images


def test_every_step_is_augmented_in_its_own_way(start):
  keys = []
  _fit(start, augment=_Keys(lambda data: keys.append(tuple(data.tolist()))))
  jax.effects_barrier()
  assert len(keys) == len(set(keys)) == 6  # Two epochs of three steps.


def test_sigma_trains_while_old_rows_are_held(start, trained):
  sigma = lambda variables: float(variables["params"]["head"]["sigma"])
  assert sigma(start) == 10.0 and sigma(trained) != 10.0


def test_head_scope_moves_the_head_alone(start):
  out = _fit(start, scope="head", rows=CLASSES.seen, teacher=None)
  assert (_head(out)[:4] != _head(start)[:4]).all()
  _assert_equal(out["params"]["backbone"], start["params"]["backbone"])
  _assert_equal(out["batch_stats"], start["batch_stats"])


@pytest.mark.parametrize("kind", ["in_out", "out"])
def test_transfer_scope_keeps_kernels_bitwise(start, kind):
  t = transfer.init(start["params"]["backbone"], kind)
  out = _fit(transfer.apply(start, t), scope="transfer")
  before = jax.tree_util.tree_flatten_with_path(start["params"]["backbone"])[0]
  after = jax.tree.leaves(out["params"]["backbone"])
  for (path, old), new in zip(before, after, strict=True):
    if path[-1].key == "kernel":
      np.testing.assert_array_equal(old, new)
    else:
      assert (np.asarray(old) != np.asarray(new)).any()
  moved = jax.tree.map(
    lambda a, b: float(jnp.abs(a - b).max()), t, out["transfer"]
  )
  scales = [m["scale"] for m in (moved["Conv_0"], moved["Block_1"]["Conv_1"])]
  assert min(scales) > 0
  for row in (0, 1, 4):
    np.testing.assert_array_equal(_head(out)[row], _head(start)[row])


def test_divergence_names_epoch_and_step(start):
  schedule = dataclasses.replace(SCHEDULE, learning_rate=1e30)
  with pytest.raises(
    FloatingPointError, match=r"in epoch 0, steps \d to \d \(loss"
  ):
    _fit(start, schedule=schedule)


def test_augmentation_reaches_the_batches(start, trained):
  out = _fit(start, augment=augment.CropFlip(2))
  assert (_head(out)[2] != _head(trained)[2]).any()
