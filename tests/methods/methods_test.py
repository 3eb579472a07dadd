"""Losses, hooks and fits of the base methods, against numbers by hand."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.tiny import (
  CE,
  CLASSES,
  KD,
  LABELS,
  STUDENT,
  TEACHER,
  C,
  masks,
  outputs,
)

from mnemonics_jax import methods
from mnemonics_jax.methods import bic
from mnemonics_jax.nn.heads import CosineHead
from mnemonics_jax.nn.model import Outputs


@pytest.mark.parametrize(
  "name", ["lwf", "icarl", "e2e", "bic", "lucir", "joint"]
)
def test_without_a_teacher_the_loss_is_cross_entropy(name):
  method = methods.METHODS[name]()
  # Nobody teaches the upper bound.
  for teacher in (None, TEACHER)[: 1 + method.joint]:
    loss, _ = method.loss(STUDENT, teacher, LABELS, CLASSES)
    assert float(loss) == pytest.approx(CE, rel=1e-5)


@pytest.mark.parametrize("name", ["lwf", "icarl", "e2e", "bic"])
def test_nodistill_drops_the_teacher(name):
  method = methods.METHODS[name](distill=False)
  loss, _ = method.loss(STUDENT, TEACHER, LABELS, CLASSES)
  assert float(loss) == pytest.approx(CE, rel=1e-5)


# LwF and iCaRL.


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


# E2E.


def test_e2e_distils_each_old_phase_by_itself():
  """Six classes in four phases, two of them old; T = 2 takes square roots."""
  phases = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0],
                     [0, 0, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1]], bool)  # fmt: skip
  classes = masks(4, 1, 6)._replace(phases=jnp.asarray(phases))
  student = outputs([[1.0, 4.0, 9.0, 1.0, 5.0, 70.0]])
  teacher = outputs([[4.0, 1.0, 1.0, 16.0, 3.0, 80.0]])
  ce = -np.log(4 / 20)
  first = -(2 / 3 * np.log(1 / 3) + 1 / 3 * np.log(2 / 3))
  second = -(1 / 5 * np.log(3 / 4) + 4 / 5 * np.log(1 / 4))
  loss, parts = methods.E2E().loss(student, teacher, LABELS, classes)
  assert float(parts["distillation"]) == pytest.approx(first + second, rel=1e-5)
  assert float(loss) == pytest.approx(ce + first + second, rel=1e-5)
  # Without the phases all old classes share one softmax: 1:2:3:1 and 2:1:1:4.
  together = -np.dot([2, 1, 1, 4], np.log(np.array([1, 2, 3, 1]) / 7)) / 8
  loss, _ = methods.E2E().loss(student, teacher, LABELS, masks(4, 1, 6))
  assert float(loss) == pytest.approx(ce + together, rel=1e-5)


def test_the_fine_tune_of_e2e_also_distils_the_new_classes():
  phases = jnp.asarray(np.eye(3, 4).astype(bool))
  classes = masks(2, 1, 4)._replace(phases=phases)
  theta = {"params": "Θ"}
  teacher, taught = methods.E2E().begin_finetune(theta, classes)
  assert teacher is theta
  assert taught.old_phases.tolist() == phases.tolist()
  assert taught.seen.tolist() == classes.seen.tolist()
  assert classes.old_phases.tolist() == [
    [True, False, False, False], [False, True, False, False], [False] * 4,
  ]  # fmt: skip
  # Nobody else is taught, nor is it without distillation.
  for method in (methods.LwF(), methods.E2E(distill=False)):
    assert method.begin_finetune(theta, classes)[0] is None


def test_e2e_adds_less_and_less_noise_to_gradients():
  """η = 0.3 on the sum over a batch, and γ = 0.55: from 0.3 to 0.3 / 4^0.55."""
  noise = methods.E2E().gradients(batch_size=8, key=jax.random.key(0))
  gradient = {"w": jnp.full((400, 500), 2.0)}
  state, deviations = noise.init(gradient), []
  for _ in range(4):
    noisy, state = noise.update(gradient, state)
    assert float(noisy["w"].mean()) == pytest.approx(2.0, abs=1e-3)
    deviations.append(float(noisy["w"].std()))
  expected = np.sqrt(0.3 / np.arange(1, 5) ** 0.55) / 8
  np.testing.assert_allclose(deviations, expected, rtol=0.01)
  for method in (methods.E2E(noise=0.0), methods.LwF()):
    still = method.gradients(batch_size=8, key=jax.random.key(0))
    same, _ = still.update(gradient, still.init(gradient))
    np.testing.assert_array_equal(same["w"], gradient["w"])


# BiC.


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


# LUCIR.


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


def test_the_authors_average_the_margin_and_start_with_one():
  ours = methods.LUCIR(less_forget_base=7.0)
  found = ours.reference()
  assert found.reduction == "mean" and found.head == CosineHead(sigma=1.0)
  same = dataclasses.replace(found, reduction=ours.reduction, head=ours.head)
  assert same == ours


@pytest.mark.parametrize("name", ["bic", "e2e", "icarl", "icarl_bce", "lwf"])
def test_the_authors_have_other_methods_as_they_are(name):
  ours = methods.METHODS[name]()
  assert ours.reference() is ours and ours.last_relu
  assert not methods.LUCIR.last_relu and not methods.Joint.last_relu
