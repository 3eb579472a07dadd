"""The upper bound: cross-entropy on everything, without a teacher."""

import pytest
from support.by_hand import CE, CLASSES, LABELS, STUDENT, TEACHER

from mnemonics_jax import methods


def test_it_alone_may_look_back():
  assert [n for n, m in methods.METHODS.items() if m.joint] == ["joint"]


def test_nobody_teaches_it():
  for teacher in (None, TEACHER):
    loss, _ = methods.Joint().loss(STUDENT, teacher, LABELS, CLASSES)
    assert float(loss) == pytest.approx(CE, rel=1e-5)
