"""What all methods have in common."""

import pytest
from support.by_hand import (
  CE,
  CLASSES,
  LABELS,
  STUDENT,
  TEACHER,
)

from mnemonics_jax import methods


@pytest.mark.parametrize(
  "name", ["lwf", "icarl", "e2e", "bic", "lucir", "joint"]
)
def test_without_a_teacher_the_loss_is_cross_entropy(name):
  loss, _ = methods.METHODS[name]().loss(STUDENT, None, LABELS, CLASSES)
  assert float(loss) == pytest.approx(CE, rel=1e-5)


@pytest.mark.parametrize("name", ["lwf", "icarl", "e2e", "bic"])
def test_nodistill_drops_the_teacher(name):
  method = methods.METHODS[name](distill=False)
  loss, _ = method.loss(STUDENT, TEACHER, LABELS, CLASSES)
  assert float(loss) == pytest.approx(CE, rel=1e-5)
