"""E2E: losses, noise and fine-tune."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.by_hand import (
  LABELS,
  masks,
  outputs,
)

from mnemonics_jax import methods


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
