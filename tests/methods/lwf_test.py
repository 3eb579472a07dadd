"""LwF: cross-entropy and distillation by hand."""

import pytest
from support.by_hand import (
  CE,
  CLASSES,
  KD,
  LABELS,
  STUDENT,
  TEACHER,
)

from mnemonics_jax import methods


@pytest.mark.parametrize("name", ["lwf", "icarl"])
def test_lwf_and_icarl_loss(name):
  method = methods.METHODS[name]()
  loss, parts = method.loss(STUDENT, TEACHER, LABELS, CLASSES)
  assert float(loss) == pytest.approx(0.5 * CE + 0.5 * KD, rel=1e-5)
  assert float(parts["distillation"]) == pytest.approx(KD, rel=1e-5)


def test_lwf_balance_is_the_weight_of_the_cross_entropy():
  method = methods.LwF(balance=0.7)
  loss, _ = method.loss(STUDENT, TEACHER, LABELS, CLASSES)
  assert float(loss) == pytest.approx(0.7 * CE + 0.3 * KD, rel=1e-5)
