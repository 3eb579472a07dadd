"""Settings of the bilevel program: defaults and refusals."""

import pytest
from support.conv_model import (
  ON_FEATURES,
)

from mnemonics_jax.bilevel import BilevelConfig


@pytest.mark.parametrize(
  ("field", "value"),
  [("scope", "body"), ("inner_steps", -1), ("max_change", 1.5)],
)
def test_config_refuses_nonsense(unchecked, field, value):
  with pytest.raises(ValueError, match=field):
    BilevelConfig(**{field: value})


def test_config_defaults_suit_the_functions_given():
  plain = BilevelConfig().resolve()
  assert (plain.scope, plain.inner_lr, plain.batch_size) == ("all", 0.02, 128)
  head = BilevelConfig(**ON_FEATURES).resolve()
  assert (head.scope, head.inner_lr, head.batch_size) == ("head", 1.0, 4096)
  paper = BilevelConfig.paper(remat="nested")
  assert (paper.inner_steps, paper.inner_lr, paper.outer_lr) == (50, 0.01, 0.01)
  assert (paper.epochs, paper.max_change, paper.scope) == (50, None, "all")
  assert hash(paper) == hash(BilevelConfig.paper(remat="nested"))
