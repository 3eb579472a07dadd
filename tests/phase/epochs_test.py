"""Epochs of training steps, against a plain loop; they stop and go on anywhere."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support import journals, training
from support.training import CLASSES, IMAGES, LABELS, MODEL, SCHEDULE

from mnemonics_jax.nn import augment, transfer
from mnemonics_jax.parallel import prefetch
from mnemonics_jax.phase import Stage
from mnemonics_jax.phase.feed import make_pool


@pytest.fixture(scope="module")
def start():
  return MODEL.init(jax.random.key(0))


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
