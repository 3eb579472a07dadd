"""An epoch draws every image once, in an order of its own."""

import jax
import numpy as np

from mnemonics_jax.phase.order import epoch_order


def order(seed, capacity, count):
  labels = np.zeros(capacity, np.int32)
  return epoch_order(jax.random.key(seed), labels, count).tolist()


def test_real_rows_come_first_and_each_of_them_once():
  for seed in range(5):
    assert sorted(order(seed, 12, 7)[:7]) == list(range(7))
    assert sorted(order(seed, 12, 7)) == list(range(12))


def test_another_key_is_another_order():
  orders = {tuple(order(seed, 12, 12)) for seed in range(6)}
  assert len(orders) == 6
  assert order(3, 12, 12) == order(3, 12, 12)


def test_every_image_may_be_first():
  firsts = [order(seed, 4, 4)[0] for seed in range(80)]
  assert set(firsts) == {0, 1, 2, 3}
