"""Forms of labelled data, and how batches are drawn from them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.mlp_model import KEY, TINY, change, draw, features_fn, head_fn

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import (
  Batch,
  BilevelConfig,
  Exemplars,
  Features,
  optimize,
)
from mnemonics_jax.bilevel import data as forms
from mnemonics_jax.errors import UserError

IMAGES = jnp.arange(12.0).reshape(3, 2, 2, 1)
LABELS = jnp.array([0, 1, 0])


def test_shuffling_puts_real_rows_first_in_any_order():
  mask = jnp.arange(10) % 3 != 0  # Rows 0, 3, 6 and 9 are padding.
  orders = [
    forms.shuffle(jax.random.key(seed), mask).tolist() for seed in range(20)
  ]
  for order in orders:
    assert sorted(order[:6]) == [1, 2, 4, 5, 7, 8]
    assert sorted(order[6:]) == [0, 3, 6, 9]
  assert len({tuple(order[:6]) for order in orders}) > 15
  assert len({order[0] for order in orders}) > 3


def test_batches_go_round_and_repeats_do_not_count():
  order, mask = (
    jnp.array([4, 2, 0, 1, 3]),
    jnp.array([True, False] * 2 + [True]),
  )
  take = lambda size, step: [
    x.tolist() for x in forms.take(order, mask, size, step)
  ]
  assert take(2, 0) == [[4, 2], [True, True]]
  assert take(2, 1) == [[0, 4], [True, True]]
  # Five rows of three real ones: two are there twice.
  assert take(5, 0) == [[4, 2, 0, 4, 2], [True] * 3 + [False] * 2]


def test_labelled_data_have_one_form_inside():
  for data in ((IMAGES, LABELS), Batch(IMAGES, LABELS)):
    assert type(forms.as_data(data)) is Exemplars
  features = Features(IMAGES.reshape(3, -1), LABELS)
  assert forms.as_data(features) is features
  with pytest.raises(UserError, match=r"pass \(images, labels\)"):
    forms.as_data((IMAGES,))
  full = forms.with_mask(forms.as_data((IMAGES, LABELS)))
  assert full.mask.tolist() == [True] * 3


def test_batches_of_steps_are_one_batch_in_order():
  steps = IMAGES[:2, None].repeat(3, 1), jnp.arange(6).reshape(2, 3)
  flat = forms.flatten_steps(steps)
  assert flat.images.shape == (6, 2, 2, 1) and flat.mask is None
  assert flat.labels.tolist() == list(range(6))
  np.testing.assert_array_equal(flat.images[2:4], IMAGES[:2])
  masked = forms.flatten_steps(
    Features(jnp.ones((2, 3, 4)), steps[1], steps[1] > 2)
  )
  assert masked.features.shape == (6, 4)
  assert masked.mask.tolist() == [False] * 3 + [True] * 3


def test_an_iterator_is_looked_at_without_losing_a_batch():
  config = BilevelConfig(steps_per_epoch=2)
  first, batches = forms.peek(iter([1, 2, 3]), config)
  assert first == 1 and list(batches) == [1, 2, 3]
  with pytest.raises(ValueError, match="is empty"):
    forms.peek([], config)
  with pytest.raises(ValueError, match="give the number of steps"):
    forms.peek([1], change(config, steps_per_epoch=None))


def test_batches_of_an_epoch_are_stacked_and_must_suffice():
  stacked = forms.stack([(IMAGES, LABELS)] * 2, 2)
  assert stacked.images.shape == (2, 3, 2, 2, 1)
  assert stacked.mask.shape == (2, 3) and stacked.mask.all()
  with pytest.raises(ValueError, match="1 short of an epoch"):
    forms.stack([(IMAGES, LABELS)] * 2, 3)


def test_parts_are_dealt_class_by_class():
  labels = jnp.array([1, 0, 0, 1, 0, 9])
  exemplars = Exemplars(jnp.zeros((6, 2, 2, 1)), labels, jnp.arange(6) < 5)
  rows, real = optimize._split_parts(exemplars, 2)
  # Class 0 is rows 1, 2, 4 and class 1 rows 0, 3: dealt in turn.
  assert rows[0][real[0]].tolist() == [1, 4, 3]
  assert rows[1][real[1]].tolist() == [2, 0]
  # Sized by all rows, so that padding may become real later.
  assert rows.shape == (2, 3)
  for parts in (1, 6):
    with pytest.raises(ValueError, match=f"parts={parts} of 5 exemplars"):
      optimize._split_parts(exemplars, parts)


def test_batches_cover_the_data_once_per_pass():
  exemplars, variables, data = draw()
  seen = []

  def watch(variables, images):
    jax.debug.callback(lambda x: seen.append(np.asarray(x)), images[:, 0, 0, 0])
    return features_fn(variables, images)

  rows = jnp.arange(40.0).reshape(40, 1, 1, 1) / 40 * jnp.ones((1, 2, 2, 1))
  config = change(TINY, batch_norm="frozen", epochs=1, steps_per_epoch=None)
  config = change(
    config, batch_size=8, scope="all", inner_steps=0, features_fn=None
  )
  bilevel.optimize_exemplars(
    KEY, exemplars, variables, (rows, data[1]), config=config,
    apply_fn=lambda v, x: head_fn(v["params"]["head"], watch(v, x)),
  )  # fmt: skip
  jax.effects_barrier()
  batches = [x for x in seen if len(x) == 8]
  assert sorted(np.concatenate(batches) * 40) == pytest.approx(range(40))
