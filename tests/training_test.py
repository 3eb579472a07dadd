"""The training loop against a loop written out by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from experiments.settings import Settings, build
from mnemonics_jax import (
  augment,
  data,
  methods,
  networks,
  pace,
  phase,
  training,
  transfer,
)
from mnemonics_jax.evaluate import extract, head_predictions
from mnemonics_jax.model import Model

METHOD = methods.LUCIR()
MODEL = Model(networks.resnet8(width=4, image_shape=(8, 8, 3)), METHOD.head, 5)
SCHEDULE = training.Schedule(
  epochs=2, learning_rate=0.1, milestones=(1,), batch_size=8
)
CLASSES = methods.Classes(
  jnp.array([True, True, False, False, False]),
  jnp.array([False, False, True, True, False]),
)
RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (20, 8, 8, 3), dtype=np.uint8)
LABELS = RNG.integers(0, 4, 20).astype(np.int32)


@pytest.fixture(scope="module")
def start():
  return MODEL.init(jax.random.key(0))


def _fit(variables, *, classes=CLASSES, reports=None, capacity=32, **options):
  settings = dict(
    model=MODEL,
    method=METHOD,
    schedule=SCHEDULE,
    classes=classes,
    rows=METHOD.trainable_rows(classes),
    teacher=variables,
    report=(reports if reports is not None else []).append,
  )
  pool = training.make_pool(IMAGES, LABELS, capacity)
  return training.fit(
    jax.random.key(1), variables, pool, **(settings | options)
  )


@pytest.fixture(scope="module")
def trained(start):
  return _fit(start)


def _head(variables):
  return np.asarray(variables["params"]["head"]["weight"])


def test_old_and_unseen_rows_are_bitwise_constant(start, trained):
  """With momentum and weight decay on, through two epochs."""
  before, after = _head(start), _head(trained)
  for row in (0, 1, 4):
    np.testing.assert_array_equal(after[row], before[row])
  assert (after[2:4] != before[2:4]).all()


def test_the_start_is_left_intact(start, trained):
  del trained
  assert all(not leaf.is_deleted() for leaf in jax.tree.leaves(start))


def test_fit_equals_a_plain_loop(start):
  """One epoch of SGD with momentum and L2, written out with optax."""
  schedule = dataclasses.replace(SCHEDULE, epochs=1, milestones=())
  fitted = _fit(start, schedule=schedule)

  tx = optax.chain(
    optax.add_decayed_weights(5e-4), optax.trace(0.9), optax.scale(-0.1)
  )
  held = np.asarray(METHOD.trainable_rows(CLASSES))[:, None]
  key = jax.random.fold_in(jax.random.key(1), 0)
  draws = np.asarray(jax.random.uniform(key, (32,)))[:20]
  order = np.argsort(draws, kind="stable")
  variables, state = start, tx.init(start["params"])

  @jax.jit
  def gradient(params, variables, images, labels):
    def loss(params):
      new = variables | {"params": params}
      student, stats = MODEL.apply(new, images, train=True)
      teacher, _ = MODEL.apply(start, images)
      return METHOD.loss(student, teacher, labels, CLASSES)[0], stats

    return jax.grad(loss, has_aux=True)(params)

  for step in range(3):
    # 20 images in batches of 8: the last batch wraps to the first four.
    picks = order[np.arange(8 * step, 8 * step + 8) % 20]
    images = jnp.asarray(IMAGES[picks], jnp.float32) / 255
    grads, stats = gradient(
      variables["params"], variables, images, LABELS[picks]
    )
    updates, state = tx.update(grads, state, variables["params"])
    updates["head"]["weight"] *= held
    params = optax.apply_updates(variables["params"], updates)
    variables = {"params": params, "batch_stats": stats}
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-5),
    fitted,
    variables,
  )


def test_padding_never_matters(start, trained):
  """More room in the pool changes the order drawn, not what is learned from."""
  pool = training.make_pool(IMAGES, LABELS, 32)
  poisoned = pool._replace(
    images=pool.images.at[20:].set(255), labels=pool.labels.at[20:].set(3)
  )
  again = training.fit(
    jax.random.key(1), start, poisoned, model=MODEL, method=METHOD,
    schedule=SCHEDULE, classes=CLASSES, rows=METHOD.trainable_rows(CLASSES),
    teacher=start, report=lambda _: None,
  )  # fmt: skip
  jax.tree.map(np.testing.assert_array_equal, again, trained)


def test_the_pace_of_reports_never_matters(start, trained, monkeypatch):
  monkeypatch.setattr(pace, "SECONDS_PER_CALL", 0.0)
  reports = []
  again = _fit(start, reports=reports)
  jax.tree.map(np.testing.assert_array_equal, again, trained)
  assert [(r.epoch, r.step) for r in reports] == [
    (0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3),
  ]  # fmt: skip
  ends = [r for r in reports if r.metrics is not None]
  assert [r.step for r in ends] == [3, 3]
  assert [r.metrics["lr"] for r in ends] == pytest.approx([0.1, 0.01])
  assert {"loss", "accuracy", "less_forget"} <= set(ends[0].metrics)


def test_every_image_is_seen_in_an_epoch():
  order = training._shuffle(jax.random.key(0), jnp.int32(20), 32)
  assert sorted(order[:20].tolist()) == list(range(20))


def test_head_scope_moves_the_head_alone(start):
  rows = CLASSES.seen
  out = _fit(start, scope="head", rows=rows, teacher=None)
  for name in ("params", "batch_stats"):
    old, new = start[name], out[name]
    if name == "params":
      assert (_head(out)[:4] != _head(start)[:4]).all()
      old, new = old["backbone"], new["backbone"]
    jax.tree.map(np.testing.assert_array_equal, old, new)


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


def test_weight_decay_pulls_transfer_to_the_identity():
  part = {"params": {}, "transfer": {"c": {"scale": jnp.array([1.0, 3.0]),
                                           "shift": jnp.array([0.0, 2.0])}}}  # fmt: skip
  pull = training._deviation(part)["transfer"]["c"]
  assert pull["scale"].tolist() == [0.0, 2.0]
  assert pull["shift"].tolist() == [0.0, 2.0]


def test_schedule_of_the_paper():
  schedule = training.Schedule()
  rates = [schedule.rate(epoch) for epoch in (0, 79, 80, 119, 120, 159)]
  np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])


def test_divergence_names_epoch_and_step(start):
  schedule = dataclasses.replace(SCHEDULE, learning_rate=1e30)
  with pytest.raises(
    FloatingPointError, match=r"in epoch 0, steps \d to \d \(loss"
  ):
    _fit(start, schedule=schedule)


def test_a_pool_too_small_is_refused():
  with pytest.raises(ValueError, match="20 images for a pool of 10"):
    training.make_pool(IMAGES, LABELS, 10)


def test_augmentation_reaches_the_batches(start, trained):
  out = _fit(start, augment=augment.CropFlip(2))
  assert (_head(out)[2] != _head(trained)[2]).any()


def test_bfloat16_learns_digits():
  config, stream = build(
    Settings(
      "digits", "test", net="resnet8", augment="crop", memory="per_class:5",
      batch_size=64, base_epochs=4, dtype="bfloat16",
    ),
    data.load("digits"),
  )  # fmt: skip
  first = stream[0]
  variables = phase.train_model(phase.begin_run(0, config), first, config)
  assert all(x.dtype == jnp.float32 for x in jax.tree.leaves(variables))
  logits = extract(config.model, config.method, variables, first.test_images)[1]
  guesses = head_predictions(logits, first.new_classes)
  # Five digits: chance is a fifth.
  assert np.mean(guesses == first.test_labels) > 0.9
