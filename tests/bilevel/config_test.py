"""Settings of the bilevel program: defaults and refusals."""

import numpy as np
import pytest
from support.conv_model import (
  ON_FEATURES,
)

from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.errors import UserError


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("scope", "body"),
    ("inner_steps", -1),
    ("inner_steps", 2.5),
    ("inner_steps", 2.0),
    ("epochs", 1.5),
    ("steps_per_epoch", 0.5),
    ("batch_size", 10.0),
    ("inner_batch_size", "4"),
    ("truncate", 1.5),
    ("inner_lr", -0.1),
    ("inner_lr", float("nan")),
    ("outer_lr", -1e-9),
    ("outer_lr", float("inf")),
    ("max_change", 1.5),
    ("max_change", float("nan")),
  ],
)
def test_config_refuses_nonsense(unchecked, field, value):
  with pytest.raises(UserError, match=f"`{field}={value}`") as error:
    BilevelConfig(**{field: value})
  assert error.value.field == field


def test_counts_may_be_numpy_integers(unchecked):
  assert BilevelConfig(inner_steps=np.int64(3)).inner_steps == 3


def test_config_defaults_suit_the_functions_given():
  plain = BilevelConfig().resolve()
  assert (plain.scope, plain.inner_lr, plain.batch_size) == ("all", 0.02, 128)
  head = BilevelConfig(**ON_FEATURES).resolve()
  assert (head.scope, head.inner_lr, head.batch_size) == ("head", 1.0, 4096)
  paper = BilevelConfig.paper(remat="nested")
  assert (paper.inner_steps, paper.inner_lr, paper.outer_lr) == (50, 0.01, 0.01)
  assert (paper.epochs, paper.max_change, paper.scope) == (50, None, "all")
  assert hash(paper) == hash(BilevelConfig.paper(remat="nested"))
