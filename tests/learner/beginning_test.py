"""What a learner begins with; `runs/published_test.py` begins with a model."""

import pytest

from mnemonics_jax import UserError
from mnemonics_jax.learner import beginning
from mnemonics_jax.phase import train_model


def test_without_a_published_model_the_first_classes_are_trained():
  assert beginning.training(None, ("cat", "dog")) is train_model


def test_a_model_that_is_not_there_is_told(tmp_path):
  for ask in (beginning.network, lambda at: beginning.training(at, ("cat",))):
    with pytest.raises(UserError, match="is not a published model"):
      ask(str(tmp_path))
