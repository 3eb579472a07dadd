"""Training steps and epochs of them, against the same written out by hand."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import journals, training
from support.training import CLASSES, IMAGES, LABELS, MODEL, SCHEDULE

from mnemonics_jax import methods
from mnemonics_jax.nn import augment, transfer
from mnemonics_jax.nn.model import Model
from mnemonics_jax.parallel import prefetch
from mnemonics_jax.phase import Schedule, Stage, sgd
from mnemonics_jax.phase.feed import make_pool
from mnemonics_jax.phase.sgd import merge, trainable
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


# What SGD moves, on variables small enough to write down.

VARIABLES = {
  "params": {
    "backbone": {
      "Block_0": {"Conv_0": {"kernel": 1}, "BatchNorm_0": {"scale": 2}}
    },
    "head": {"weight": 3},
  },
  "batch_stats": {"mean": 4},
  "transfer": {"Block_0": {"Conv_0": {"scale": 5}}},
}


def test_all_is_every_parameter():
  assert trainable(VARIABLES, "all") == {"params": VARIABLES["params"]}


def test_head_is_the_head():
  assert trainable(VARIABLES, "head") == {"params": {"head": {"weight": 3}}}


def test_transfer_leaves_kernels_frozen():
  params = {
    "backbone": {"Block_0": {"Conv_0": {}, "BatchNorm_0": {"scale": 2}}},
    "head": {"weight": 3},
  }
  expected = {"params": params, "transfer": VARIABLES["transfer"]}
  assert trainable(VARIABLES, "transfer") == expected


def test_merging_a_part_back_changes_nothing_else():
  for scope in ("all", "head", "transfer"):
    assert merge(VARIABLES, trainable(VARIABLES, scope)) == VARIABLES
  merged = merge(VARIABLES, {"params": {"head": {"weight": 9}}})
  assert merged["params"]["head"] == {"weight": 9}
  assert merged["params"]["backbone"] is VARIABLES["params"]["backbone"]
  assert VARIABLES["params"]["head"] == {"weight": 3}


# What a method brings to a step: its teacher's layers, its noise.

LINEAR = Model(MODEL.network, methods.LwF().head, 5)
BATCH = Batch(IMAGES[:8], LABELS[:8])


def _plain_task(method, teacher=None):
  schedule = Schedule(epochs=2, milestones=(1,), batch_size=8)
  return sgd.Task(
    CLASSES, CLASSES.seen, teacher,
    model=LINEAR, method=method, schedule=schedule,
  )  # fmt: skip


def test_the_teacher_speaks_through_the_layers_of_its_method():
  """BiC's α and β of old classes count in what is distilled, by NumPy."""
  method = methods.BiC()
  student, teacher = (
    method.begin_run(LINEAR.init(jax.random.key(seed))) for seed in (0, 1)
  )
  alpha, beta = np.array([3.0, 0.5]), np.array([2.0, -1.0])
  layers = teacher["bias_layers"]
  teacher["bias_layers"] = {
    "alpha": layers["alpha"].at[:2].set(alpha),
    "beta": layers["beta"].at[:2].set(beta),
  }
  task = _plain_task(method, teacher)
  _, metrics = STEP(sgd.init_training(task, student), BATCH, task=task)
  images = jnp.float32(BATCH.images) / 255
  raw = jax.jit(lambda v: LINEAR.apply(v, images)[0].logits)(teacher)
  train = jax.jit(lambda v: LINEAR.apply(v, images, True)[0].logits)(student)
  softmax = lambda z: np.exp(z) / np.exp(z).sum(-1, keepdims=True)
  target = softmax((alpha * np.asarray(raw, float)[:, :2] + beta) / 2)
  log_probs = np.log(softmax(np.asarray(train, float)[:, :2] / 2))
  expected = -(target * log_probs).sum(-1).mean()
  assert float(metrics["distillation"]) == pytest.approx(expected, rel=1e-3)


def test_noise_on_gradients_moves_what_may_move():
  begin = LINEAR.init(jax.random.key(0))
  pool, key = training.pool(), jax.random.key(1)
  quiet, loud = (
    sgd.fit(key, begin, pool, _plain_task(methods.E2E(noise=noise)))
    for noise in (0.0, 50.0)
  )
  assert np.abs(training.head(loud)[2] - training.head(quiet)[2]).min() > 1e-4
  np.testing.assert_array_equal(training.head(loud)[4], training.head(begin)[4])


def test_noise_on_gradients_follows_the_key():
  task, begin = _plain_task(methods.E2E()), LINEAR.init(jax.random.key(0))
  one, same, other = (
    training.head(STEP(state, BATCH, task=task)[0].variables)
    for state in (
      sgd.init_training(task, begin, jax.random.key(seed)) for seed in (1, 1, 2)
    )
  )
  np.testing.assert_array_equal(one, same)
  assert (one[2:4] != other[2:4]).all()


# Epochs; they stop and go on anywhere.


@pytest.fixture(scope="module")
def trained(start):
  return training.fit(start)


def test_fit_equals_a_plain_loop(start, trained):
  """Two epochs, the second at a tenth of the rate."""
  picks = []
  for epoch in range(2):
    key = jax.random.fold_in(jax.random.key(1), epoch)
    draws = np.asarray(jax.random.uniform(key, (32,)))[:20]
    order = np.argsort(draws, kind="stable")
    # 20 images in batches of 8: the last batch wraps to the first four.
    picks += [order[np.arange(8 * i, 8 * i + 8) % 20] for i in range(3)]
  batches = [(IMAGES[p], LABELS[p]) for p in picks]
  rates = [0.1] * 3 + [0.01] * 3
  expected, _ = training.by_hand(start, batches, rates)
  training.assert_close(trained, expected)


def test_old_and_unseen_rows_are_bitwise_constant(start, trained):
  """With momentum and weight decay on, through two epochs."""
  before, after = training.head(start), training.head(trained)
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
  training.assert_equal(training.fit(start, feed=poisoned), trained)


def test_the_pace_of_reports_never_matters(start, trained, monkeypatch):
  monkeypatch.setattr(prefetch, "SECONDS_PER_CALL", 0.0)
  reports = []
  again = training.fit(start, stage=Stage(report=reports.append))
  training.assert_equal(again, trained)
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
  training.fit(start, stage=Stage(report=whole.append))
  again, journal = journals.in_pieces(
    lambda journal: training.fit(
      start, stage=Stage(report=pieces.append, journal=journal)
    )
  )
  training.assert_equal(again, trained)
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
  training.fit(start, augment=_Watched(note))
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
  training.fit(
    start, augment=_Keys(lambda data: keys.append(tuple(data.tolist())))
  )
  jax.effects_barrier()
  assert len(keys) == len(set(keys)) == 6  # Two epochs of three steps.


def test_sigma_trains_while_old_rows_are_held(start, trained):
  sigma = lambda variables: float(variables["params"]["head"]["sigma"])
  assert sigma(start) == 10.0 and sigma(trained) != 10.0


def test_head_scope_moves_the_head_alone(start):
  out = training.fit(start, scope="head", rows=CLASSES.seen, teacher=None)
  assert (training.head(out)[:4] != training.head(start)[:4]).all()
  training.assert_equal(out["params"]["backbone"], start["params"]["backbone"])
  training.assert_equal(out["batch_stats"], start["batch_stats"])


@pytest.mark.parametrize("kind", ["in_out", "out"])
def test_transfer_scope_keeps_kernels_bitwise(start, kind):
  t = transfer.init(start["params"]["backbone"], kind)
  out = training.fit(transfer.apply(start, t), scope="transfer")
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
    np.testing.assert_array_equal(
      training.head(out)[row], training.head(start)[row]
    )


def test_divergence_names_epoch_and_step(start):
  schedule = dataclasses.replace(SCHEDULE, learning_rate=1e30)
  with pytest.raises(
    FloatingPointError, match=r"in epoch 0, steps \d to \d \(loss"
  ):
    training.fit(start, schedule=schedule)


def test_augmentation_reaches_the_batches(start, trained):
  out = training.fit(start, augment=augment.CropFlip(2))
  assert (training.head(out)[2] != training.head(trained)[2]).any()
