"""Exemplars learned through an unrolled inner loop (Liu et al., CVPR 2020).

Exemplars E are image-shaped parameters. The base level trains a temporary model
Θ'(E) on them, the meta level moves their pixels down the validation loss of Θ':

    Θ' ← Θ' − α₂ ∇_Θ' L_c(Θ'; E)     (Eq. 8)
    E ← E − β ∇_E L_c(Θ'(E); V)      (Eq. 9)

The paper's V is the new data (Eq. 7), or other old exemplars (Eq. 10).

Any model written as a function of a dict of arrays will do:

>>> import jax, jax.numpy as jnp
>>> from mnemonics_jax import bilevel
>>> def apply_fn(variables, images):
...   return images.reshape(len(images), -1) @ variables["params"]["w"]
>>> images = jax.random.uniform(jax.random.key(0), (64, 4, 4, 1))
>>> labels = (images[:, 0].mean((1, 2)) > 0.5).astype(jnp.int32)
>>> variables = {"params": {"w": jnp.zeros((16, 2))}}
>>> exemplars = bilevel.Exemplars(images[:6], labels[:6])
>>> result = bilevel.optimize_exemplars(
...   jax.random.key(1), exemplars, variables, (images, labels),
...   apply_fn=apply_fn)
>>> bool(result.history.loss[-1] < result.history.loss[0])
True
>>> bilevel.to_uint8(result.exemplars.images).shape
(6, 4, 4, 1)

`optimize_exemplars` is a loop over three functions. Write that loop yourself to save
states, draw pictures or stop early:

>>> problem = bilevel.prepare(
...   exemplars, variables, (images, labels), apply_fn=apply_fn)
>>> state = bilevel.init(jax.random.key(1), exemplars)
>>> while state.step < problem.total_steps:
...   state = bilevel.steps(problem, state, 5)
...   row = bilevel.measure(problem, state)
>>> bool(jnp.array_equal(state.images, result.exemplars.images))
True
"""

from mnemonics_jax.bilevel.base_level import (
  hypergradient,
  imprint,
  meta_loss,
  unroll,
)
from mnemonics_jax.bilevel.choice import Choice, learn_choice
from mnemonics_jax.bilevel.config import ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.data import Features
from mnemonics_jax.bilevel.diagnostics import (
  HypergradientCheck,
  MemoryEstimate,
  check_hypergradient,
  device_bytes,
  estimate_memory,
  step_bytes,
)
from mnemonics_jax.bilevel.meta_level import (
  BilevelState,
  Problem,
  evaluate,
  init,
  measure,
  prepare,
  steps,
)
from mnemonics_jax.bilevel.optimize import (
  BilevelResult,
  Callback,
  History,
  Moment,
  adjust_exemplars,
  init_parts,
  merge_parts,
  optimize_exemplars,
  run_parts,
  run_steps,
)
from mnemonics_jax.nn.pixels import from_uint8, to_uint8
from mnemonics_jax.types import Batch, Exemplars

__all__ = [
  "ApplyFn",
  "Batch",
  "BilevelConfig",
  "BilevelResult",
  "BilevelState",
  "Callback",
  "Choice",
  "Exemplars",
  "Features",
  "History",
  "HypergradientCheck",
  "MemoryEstimate",
  "Moment",
  "Problem",
  "adjust_exemplars",
  "check_hypergradient",
  "device_bytes",
  "estimate_memory",
  "evaluate",
  "from_uint8",
  "hypergradient",
  "imprint",
  "init",
  "init_parts",
  "learn_choice",
  "measure",
  "merge_parts",
  "meta_loss",
  "optimize_exemplars",
  "prepare",
  "run_parts",
  "run_steps",
  "step_bytes",
  "steps",
  "to_uint8",
  "unroll",
]
