"""iCaRL: the original loss by hand."""

import numpy as np
import pytest
from support.by_hand import (
  CLASSES,
  LABELS,
  STUDENT,
  TEACHER,
)

from mnemonics_jax import methods


def test_icarl_bce_uses_the_old_network_for_old_classes():
  loss, _ = methods.ICaRLBCE().loss(STUDENT, TEACHER, LABELS, CLASSES)
  p = np.array([1 / 2, 2 / 3, 1 / 2])  # Sigmoids of odds 1, 2, 1.
  t = np.array([4 / 5, 1 / 2, 0.0])  # Old: teacher. New: not the truth.
  expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).sum()
  assert float(loss) == pytest.approx(expected, rel=1e-5)
  # In phase 0 the targets are the labels.
  loss, _ = methods.ICaRLBCE().loss(STUDENT, None, LABELS, CLASSES)
  t = np.array([0.0, 1.0, 0.0])
  expected = -(t * np.log(p) + (1 - t) * np.log(1 - p)).sum()
  assert float(loss) == pytest.approx(expected, rel=1e-5)
