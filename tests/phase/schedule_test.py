"""Learning rates and steps, against the paper and by hand."""

import numpy as np
import pytest

from mnemonics_jax.errors import UserError
from mnemonics_jax.phase import Schedule


def test_schedule_of_the_paper():
  schedule = Schedule()
  rates = [schedule.rate(epoch) for epoch in (0, 79, 80, 119, 120, 159)]
  np.testing.assert_allclose(rates, [0.1, 0.1, 0.01, 0.01, 0.001, 0.001])
  assert (schedule.epochs, schedule.batch_size) == (160, 128)


@pytest.mark.parametrize(
  ("images", "steps"), [(1, 1), (127, 1), (128, 1), (129, 2), (50_000, 391)]
)
def test_the_last_batch_of_an_epoch_is_a_step_too(images, steps):
  assert Schedule(batch_size=128).steps(images) == steps


@pytest.mark.parametrize(
  "wrong",
  [
    dict(epochs=-1),
    dict(batch_size=0),
    dict(learning_rate=0.0),
    dict(learning_rate=float("nan")),
    dict(decay=0.0),
    dict(momentum=1.0),
    dict(weight_decay=-0.1),
  ],
)
def test_what_cannot_train_is_refused_by_its_name(wrong):
  (name,) = wrong
  with pytest.raises(UserError, match=f"`{name}=") as refused:
    Schedule(**wrong)
  assert refused.value.field == name
