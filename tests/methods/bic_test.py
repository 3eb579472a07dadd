"""BiC: the loss by hand, and its second stage."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import (
  CE,
  CLASSES,
  KD,
  LABELS,
  STUDENT,
  TEACHER,
  masks,
)

from mnemonics_jax import methods
from mnemonics_jax.methods import bic
from mnemonics_jax.nn.model import Outputs


def test_bic_weighs_distillation_by_the_share_of_old_classes():
  loss, _ = methods.BiC().loss(STUDENT, TEACHER, LABELS, CLASSES)
  assert float(loss) == pytest.approx(2 / 3 * KD + 1 / 3 * CE, rel=1e-5)


def test_bic_recovers_planted_bias():
  """Labels drawn from α z + β; the fit finds α and β back."""
  rng = np.random.default_rng(0)
  classes = masks(3, 2, 6)
  alpha, beta = 0.6, -0.8
  z = rng.normal(size=(20_000, 6)) * 2
  corrected = np.where(np.asarray(classes.new), alpha * z + beta, z)[:, :5]
  p = np.asarray(jax.nn.softmax(jnp.asarray(corrected), -1), np.float64)
  draws = rng.random((len(z), 1))
  labels = (p.cumsum(-1) < draws).sum(-1).clip(0, 4)
  fitted = bic.fit_bias(z, labels, classes, ridge=1.0)
  np.testing.assert_allclose(fitted, (alpha, beta), atol=0.05)


def test_bic_stays_finite_on_separable_data():
  z = np.array([[5.0, 0.0], [0.0, 5.0]])
  fitted = bic.fit_bias(z, np.array([0, 1]), masks(1, 1, 2), ridge=1.0)
  assert np.all(np.isfinite(fitted)) and np.abs(fitted).max() < 3


def test_bic_layers_correct_only_their_own_phase():
  method = methods.BiC()
  head = {"weight": jnp.zeros((4, 2)), "bias": jnp.zeros(4)}
  variables = method.begin_run({"params": {"head": head}})
  z = jnp.array([[1.0, 2.0, 3.0, 4.0]])
  outputs = Outputs(jnp.zeros((1, 2)), z, z)
  np.testing.assert_array_equal(method.logits(variables, outputs), z)
  rng = np.random.default_rng(0)
  logits, labels = rng.normal(size=(50, 4)), rng.integers(0, 3, 50)
  variables = method.calibrate(variables, logits, labels, CLASSES)
  layers = variables["bias_layers"]
  assert layers["alpha"][jnp.array([0, 1, 3])].tolist() == [1.0, 1.0, 1.0]
  assert layers["beta"][jnp.array([0, 1, 3])].tolist() == [0.0, 0.0, 0.0]
  alpha, beta = float(layers["alpha"][2]), float(layers["beta"][2])
  assert (alpha, beta) != (1.0, 0.0)
  np.testing.assert_allclose(
    method.logits(variables, outputs), [[1, 2, 3 * alpha + beta, 4]], rtol=1e-6
  )
