"""BiC (Wu et al. 2019): large-scale incremental learning by bias correction."""

import dataclasses
from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Float, Int
import numpy as np

from mnemonics_jax import losses
from mnemonics_jax.methods.base import Classes, Method


@dataclasses.dataclass(frozen=True)
class BiC(Method):
  """Distillation in stage 1, a two-parameter bias layer per phase in stage 2.

  Attributes:
    temperature: τ of the distillation.
    ridge: pull of (α, β) to (1, 0), worth this many held-out images; it matters
      when there is only a handful of them.
  """

  name: ClassVar[str] = "bic"
  holdout: ClassVar[float] = 0.1
  temperature: float = 2.0
  ridge: float = 1.0

  def begin_run(self, variables):
    """Adds the bias layers of all phases: α and β of each class."""
    classes = variables["params"]["head"]["bias"].shape[0]
    identity = {"alpha": jnp.ones(classes), "beta": jnp.zeros(classes)}
    return variables | {"bias_layers": identity}

  def logits(self, variables, outputs):
    """Logits through the bias layers of all phases (identity for the newest)."""
    layers = variables["bias_layers"]
    return layers["alpha"] * outputs.logits + layers["beta"]

  def loss(self, student, teacher, labels, classes):
    """Stage 1: λ·L_d + (1 − λ)·L_c with λ = n_old / (n_old + n_new)."""
    ce = losses.cross_entropy(student.logits, labels, classes.seen)
    if teacher is None or not self.distill:
      return ce, {"cross_entropy": ce}
    kd = losses.distillation(
      student.logits, teacher.logits, classes.old, self.temperature
    )
    share = classes.old.sum() / classes.seen.sum()
    loss = share * kd + (1 - share) * ce
    return loss, {"cross_entropy": ce, "distillation": kd}

  def calibrate(self, variables, logits, labels, classes):
    """Stage 2: z ← α·z + β for the newest classes."""
    alpha, beta = fit_bias(logits, labels, classes, ridge=self.ridge)
    layers = variables["bias_layers"]
    layers = {
      "alpha": jnp.where(classes.new, alpha, layers["alpha"]),
      "beta": jnp.where(classes.new, beta, layers["beta"]),
    }
    return variables | {"bias_layers": layers}


def fit_bias(
  logits: Float[np.ndarray, "n classes"],
  labels: Int[np.ndarray, " n"],
  classes: Classes,
  *,
  ridge: float,
) -> Float[np.ndarray, "2"]:
  """(α, β) of the new classes that minimise cross-entropy; a convex problem.

  Solved on the host: two unknowns, and a few hundred logits whose number changes
  from phase to phase. `ridge` pulls to (1, 0), worth that many images.
  """
  from scipy import optimize, special  # Slow to import, and only BiC needs it.

  new = np.asarray(classes.new)[np.asarray(classes.seen)]
  z = np.asarray(logits, np.float64)[:, np.asarray(classes.seen)]
  rows = np.arange(len(labels))

  def objective(layer):
    alpha, beta = layer
    log_probs = special.log_softmax(np.where(new, alpha * z + beta, z), -1)
    error = np.exp(log_probs)
    error[rows, labels] -= 1
    error = error * new
    away = np.array([alpha - 1, beta])
    value = -log_probs[rows, labels].sum() + ridge * (away @ away)
    gradient = np.array([(error * z).sum(), error.sum()]) + 2 * ridge * away
    return value / len(labels), gradient / len(labels)

  solution = optimize.minimize(objective, (1.0, 0.0), jac=True, method="BFGS")
  return solution.x
