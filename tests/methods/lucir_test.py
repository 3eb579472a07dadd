"""LUCIR: three losses, imprinting, frozen rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import (
  CE,
  CLASSES,
  LABELS,
  STUDENT,
  TEACHER,
  C,
  masks,
)

from mnemonics_jax import methods


def test_lucir_loss():
  loss, _ = methods.LUCIR().loss(STUDENT, TEACHER, LABELS, CLASSES)
  # cos(f, f_old) = 0.6; λ = 5 √(2/1); cosines log(odds)/10 of truth and new.
  forget = 5 * 2**0.5 * 0.4
  ranking = 0.5 - np.log(2) / 10 + np.log(1) / 10
  assert float(loss) == pytest.approx(CE + forget + ranking, rel=1e-5)


def test_lucir_may_average_its_margin_loss():
  """Two new classes: half of what the sum gives."""
  classes = masks(2, 2, C)
  ranking = lambda **options: float(
    methods.LUCIR(**options).loss(STUDENT, TEACHER, LABELS, classes)[1][
      "margin_ranking"
    ]
  )
  # Cosines log(odds) / 10 of the truth and of both new classes.
  truth, new = np.log(2) / 10, np.log([1, 50]) / 10
  expected = np.maximum(0, 0.5 - truth + new).sum()
  assert ranking() == pytest.approx(expected, rel=1e-5)
  assert ranking(reduction="mean") == pytest.approx(expected / 2, rel=1e-5)


def test_lucir_less_forget_weights_are_the_published_ones():
  weights = [
    float(methods.LUCIR().less_forget_weight(masks(n_old, 10, 100)))
    for n_old in (50, 60, 70, 80, 90)
  ]
  np.testing.assert_allclose(
    weights, [11.18, 12.25, 13.23, 14.14, 15.0], atol=5e-3
  )


def test_lucir_imprints_new_rows_and_holds_old_ones():
  head = {"weight": jnp.eye(4, 3), "sigma": jnp.float32(1.0)}
  variables = {"params": {"head": head}}
  means = jnp.zeros((4, 3)).at[2].set(jnp.array([0.0, 3.0, 4.0]))
  out = methods.LUCIR().begin_phase(variables, lambda: means, CLASSES)
  weight = out["params"]["head"]["weight"]
  np.testing.assert_allclose(weight[2], [0.0, 0.6, 0.8], rtol=1e-6)
  np.testing.assert_array_equal(weight[:2], head["weight"][:2])
  rows = methods.LUCIR().trainable_rows(CLASSES)
  assert rows.tolist() == [False, False, True, False]


def test_lucir_imprints_at_the_mean_norm_of_the_old_rows():
  weight = jnp.array([[3.0, 4.0], [0.0, 1.0], [9.0, 9.0], [7.0, 7.0]])
  variables = {"params": {"head": {"weight": weight, "sigma": 1.0}}}
  means = jnp.array([[0.0, 0.0], [0.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
  out = methods.LUCIR().begin_phase(variables, lambda: means, CLASSES)
  # Old norms 5 and 1: the new row is 3 long. The last class is not here yet.
  expected = [[3.0, 4.0], [0.0, 1.0], [3.0, 0.0], [7.0, 7.0]]
  np.testing.assert_allclose(
    out["params"]["head"]["weight"], expected, rtol=1e-6
  )


def test_sigma_starts_at_ten():
  params = methods.LUCIR().head.init(jax.random.key(0), dim=3, classes=4)
  assert float(params["sigma"]) == 10.0
