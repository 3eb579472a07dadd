"""How many steps a compiled call has images for."""

import pytest

from mnemonics_jax.phase import Schedule, feed


@pytest.mark.parametrize(
  "batch, capacity, side, steps",
  [
    (4, 100, 8, 2),  # 2 of 4·8·8·3 = 768 bytes fit into 2,000.
    (4, 7, 8, 2),  # An epoch has two.
    (4, 3, 8, 1),
    (64, 1000, 8, 1),  # One does not fit, and there is at least one.
  ],
)
def test_as_many_as_fit_and_as_an_epoch_has(
  monkeypatch, batch, capacity, side, steps
):
  monkeypatch.setattr(feed, "BYTES", 2000)
  schedule = Schedule(batch_size=batch)
  found = feed.block_steps(schedule, capacity, (side, side, 3))
  assert found == steps
