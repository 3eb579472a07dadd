"""Old exemplars adjusted with each other."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.mlp_model import (
  KEY,
  TINY,
  assert_equal,
  change,
  draw,
)

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import Exemplars


def test_adjusting_moves_one_half_at_a_time():
  exemplars, variables, _ = draw(n=13)
  exemplars = exemplars._replace(mask=jnp.arange(13) != 12)
  snapshots = []
  result = bilevel.adjust_exemplars(
    KEY, exemplars, variables, config=TINY,
    callback=lambda epoch, states, metrics: snapshots.append((epoch, states)),
  )  # fmt: skip
  assert [epoch for epoch, _ in snapshots] == list(range(6))
  # Stored as 0 1 2 0 1 2 0 1 2 0 1 2: the first and third of a class are A.
  half_a = np.array([0, 6, 1, 7, 2, 8])
  half_b = np.array([3, 9, 4, 10, 5, 11])
  first = snapshots[2][1]
  assert first[1].step == 0
  np.testing.assert_array_equal(
    first[1].images[:6], exemplars.images[half_b],
    err_msg="B has not been touched while A moved",
  )  # fmt: skip
  last = result.state
  # A stands still while B moves.
  assert_equal(first[0]._replace(key=None), last[0]._replace(key=None))
  images = result.exemplars.images
  assert_equal(images[half_a], last[0].images[:6])
  assert_equal(images[half_b], last[1].images[:6])
  assert_equal(last[1].initial[:6], exemplars.images[half_b])
  assert not np.array_equal(images[half_a], exemplars.images[half_a])
  assert not np.array_equal(images[half_b], exemplars.images[half_b])
  assert_equal(images[12], exemplars.images[12])
  assert_equal(result.exemplars.labels, exemplars.labels)
  assert_equal(result.exemplars.mask, exemplars.mask)
  # A is validated by B alone: its run equals one with B as the data.
  alone = bilevel.optimize_exemplars(
    jax.random.fold_in(KEY, 0),
    Exemplars(exemplars.images[half_a], exemplars.labels[half_a]),
    variables,
    (exemplars.images[half_b], exemplars.labels[half_b]),
    config=TINY,
  )
  np.testing.assert_allclose(
    alone.exemplars.images, images[half_a], rtol=0, atol=1e-5
  )


def test_adjusting_continues_in_the_middle_and_takes_more_parts():
  exemplars, variables, _ = draw(n=9)
  snapshots = []
  adjust = lambda **kwargs: bilevel.adjust_exemplars(
    KEY, exemplars, variables, config=TINY, parts=3, **kwargs
  )
  whole = adjust(callback=lambda e, states, m: snapshots.append(states))
  assert len(whole.state) == 3 and len(whole.history.loss) == 9
  rest = adjust(state=snapshots[4])
  assert_equal(rest.exemplars, whole.exemplars)
  assert len(rest.history.loss) == 4
  with pytest.raises(ValueError, match="parts=1"):
    bilevel.adjust_exemplars(KEY, exemplars, variables, config=TINY, parts=1)


def test_moments_are_told_of_all_parts_and_any_can_be_continued():
  """From every moment, one after the other."""
  exemplars, variables, _ = draw(n=9)
  begin = bilevel.init_parts(KEY, exemplars, TINY, 3)
  assert len(begin) == 3 and {int(state.step) for state in begin} == {0}
  assert len({tuple(jax.random.key_data(s.key).tolist()) for s in begin}) == 3
  assert_equal(bilevel.merge_parts(exemplars, begin), exemplars)
  go_on = lambda states: bilevel.run_parts(
    exemplars, variables, states, config=TINY
  )
  whole = list(go_on(begin))
  assert [m.epoch for m in whole if m.row is not None] == list(range(9))
  pieces, states = [], begin
  while (moment := next(go_on(states), None)) is not None:
    pieces.append(moment)
    states = moment.state
  rows = lambda moments: [m.row for m in moments if m.row is not None]
  assert rows(pieces) == rows(whole)
  assert_equal(
    bilevel.merge_parts(exemplars, states),
    bilevel.merge_parts(exemplars, whole[-1].state),
  )


def test_each_part_sees_what_the_parts_before_it_have_become():
  """B is validated by the A that has moved."""
  exemplars, variables, _ = draw(n=12)
  free = change(TINY, max_change=None, outer_lr=0.02)
  result = bilevel.adjust_exemplars(KEY, exemplars, variables, config=free)
  half_a, half_b = np.array([0, 6, 1, 7, 2, 8]), np.array([3, 9, 4, 10, 5, 11])
  rows = lambda images, half: (images[half], exemplars.labels[half])
  run = lambda validation: (
    bilevel.optimize_exemplars(
      jax.random.fold_in(KEY, 1),
      Exemplars(*rows(exemplars.images, half_b)),
      variables,
      rows(validation, half_a),
      config=free,
    ).exemplars.images
  )
  moved, still = run(result.exemplars.images), run(exemplars.images)
  actual = result.exemplars.images[half_b]
  np.testing.assert_allclose(actual, moved, rtol=0, atol=1e-6)
  assert np.abs(actual - still).max() > 1e-6
