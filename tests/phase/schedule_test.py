"""Learning rates and steps, against the paper and by hand."""

import numpy as np
import pytest

from mnemonics_jax.errors import UserError
from mnemonics_jax.phase import Schedule
from mnemonics_jax.phase.config import milestones_at


def test_schedule_of_the_paper():
  schedule = Schedule()
  rates = [schedule.rate(epoch) for epoch in (0, 79, 80, 119, 120, 159)]
  np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
  assert (schedule.epochs, schedule.batch_size) == (160, 128)


def test_a_cosine_falls_to_zero():
  """Rates of the middles of epochs: cos² of a quarter circle in four parts."""
  schedule = Schedule(4, learning_rate=0.2, curve="cosine")
  rates = [schedule.rate(epoch) for epoch in range(4)]
  expected = 0.2 * np.cos(np.pi * np.array([1, 3, 5, 7]) / 16) ** 2
  np.testing.assert_allclose(rates, expected, rtol=1e-5)


def test_one_cycle_rises_for_a_third_and_falls_to_zero():
  schedule = Schedule(10, learning_rate=0.5, curve="one_cycle")
  rates = [schedule.rate(epoch) for epoch in range(10)]
  # From a 25th to the peak in three epochs: half of that after one and a half.
  np.testing.assert_allclose(rates[1], 0.5 * (1 + 1 / 25) / 2, rtol=1e-5)
  np.testing.assert_allclose(
    rates[6], 0.25, rtol=1e-3
  )  # Halfway from 3 to 10, at 6.5.
  assert max(rates) == rates[3] and rates[9] < 0.01
  for epochs in (1, 2, 3):  # Short ones, too.
    rate = Schedule(epochs, learning_rate=0.5, curve="one_cycle").rate(0)
    assert 0.2 < rate <= 0.5


def test_milestones_do_not_matter_to_a_curve():
  curved = Schedule(4, milestones=(1,), curve="cosine")
  assert curved.rate(2) == Schedule(4, milestones=(), curve="cosine").rate(2)


@pytest.mark.parametrize(
  ("images", "steps"), [(1, 1), (127, 1), (128, 1), (129, 2), (50_000, 391)]
)
def test_the_last_batch_of_an_epoch_is_a_step_too(images, steps):
  assert Schedule(batch_size=128).steps(images) == steps


@pytest.mark.parametrize(
  "wrong",
  [
    dict(epochs=-1),
    dict(epochs=1.5),
    dict(batch_size=0),
    dict(batch_size=2.5),
    dict(milestones=(80, -1)),
    dict(learning_rate=0.0),
    dict(learning_rate=float("nan")),
    dict(decay=0.0),
    dict(momentum=1.0),
    dict(curve="linear"),
    dict(weight_decay=-0.1),
  ],
)
def test_what_cannot_train_is_refused_by_its_name(unchecked, wrong):
  (name,) = wrong
  with pytest.raises(UserError, match=f"`{name}=") as refused:
    Schedule(**wrong)
  assert refused.value.field == name


@pytest.mark.parametrize(
  ("epochs", "milestones"),
  [(160, (80, 120)), (8, (4, 6)), (3, (1, 2)), (2, (1,)), (1, ())],
)
def test_short_schedules_begin_at_the_full_rate(epochs, milestones):
  """Milestones are distinct; those that come too late are left out."""
  assert milestones_at((0.5, 0.75), epochs) == milestones
  rates = [Schedule(epochs, 0.1, milestones).rate(e) for e in range(epochs)]
  assert rates[0] == 0.1
  steps = np.divide(rates[1:], rates[:-1])
  np.testing.assert_allclose(steps[steps < 0.99], 0.1)


def test_milestones_of_imagenet():
  assert milestones_at((1 / 3, 2 / 3), 90) == (30, 60)
  assert milestones_at((1 / 3, 2 / 3), 2) == (1,)
