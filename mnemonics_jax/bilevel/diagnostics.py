"""Two questions before a long run: does it fit, and is the gradient right?"""

import dataclasses
import functools
import os
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array
import numpy as np

from mnemonics_jax.bilevel.base_level import hypergradient, unroll
from mnemonics_jax.bilevel.batches import Data, as_data
from mnemonics_jax.bilevel.config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.types import Exemplars, Variables


class MemoryEstimate(NamedTuple):
  """Bytes the compiled hypergradient occupies, arguments included.

  >>> estimate = MemoryEstimate(9000, 3000, 1000, suggestion="step")
  >>> dataclasses.replace(DEFAULT, remat=estimate.suggestion).remat
  'step'

  Attributes:
    none: with `remat="none"`, the fastest.
    step: with `remat="step"`.
    nested: with `remat="nested"`, the slowest.
    suggestion: the fastest of them within the limit; None if none fits.
  """

  none: int
  step: int
  nested: int
  suggestion: str | None


class HypergradientCheck(NamedTuple):
  """Derivative of the meta loss along one direction, computed twice.

  >>> check = HypergradientCheck(2e-5, -0.26891, -0.26892, "forward")
  >>> check.error < 1e-3
  True

  Attributes:
    error: difference of the two, relative to the norm of the hypergradient or
      to the larger of them.
    reverse: from the hypergradient, as the meta loop uses it.
    reference: from `method`, in float64.
    method: `forward` (forward-mode differentiation through the unroll) or
      `finite` (central differences).
  """

  error: float
  reverse: float
  reference: float
  method: str


def estimate_memory(
  exemplars: Exemplars,
  variables: Variables,
  batch: Data,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  limit_bytes: int | None = None,
  **kwargs: Any,
) -> MemoryEstimate:
  """Bytes of one meta step for every `remat`, before anything runs.

  Compiles the hypergradient three times and reads what the compiler allots.
  Arrays may be `jax.ShapeDtypeStruct`s. `limit_bytes` defaults to the memory
  of the device. Further keywords are those of `hypergradient`.

  >>> apply_fn = lambda variables, x: x[:, 0, 0] @ variables["params"]["w"]
  >>> variables = {"params": {"w": jnp.zeros((1, 2))}}
  >>> white = Exemplars(jnp.ones((1, 1, 1, 1)), jnp.array([0]))
  >>> estimate = estimate_memory(white, variables, white, apply_fn=apply_fn)
  >>> estimate.none < 2**20, estimate.suggestion
  (True, 'none')
  """

  def compiled_bytes(remat):
    static = dict(
      apply_fn=apply_fn, config=dataclasses.replace(config, remat=remat)
    )
    program = jax.jit(functools.partial(hypergradient, **static))
    compiled = program.lower(exemplars, variables, as_data(batch), **kwargs)
    memory: Any = compiled.compile().memory_analysis()
    return (
      memory.temp_size_in_bytes
      + memory.argument_size_in_bytes
      + memory.output_size_in_bytes
    )

  sizes = {remat: compiled_bytes(remat) for remat in ("none", "step", "nested")}
  if limit_bytes is None:
    limit_bytes = device_bytes()
  fitting = [remat for remat, size in sizes.items() if size <= limit_bytes]
  return MemoryEstimate(**sizes, suggestion=next(iter(fitting), None))


def step_bytes(
  exemplars: Exemplars,
  variables: Variables,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
) -> int:
  """About what a meta step with `remat="step"` needs for its exemplars.

  From shapes alone, where `estimate_memory` takes a minute to compile: counts
  what one step of the base level leaves behind for the gradient through it, and
  not the validation batch.

  >>> apply_fn = lambda variables, x: x[:, 0, 0] @ variables["params"]["w"]
  >>> variables = {"params": {"w": jnp.zeros((3, 2))}}
  >>> size = lambda n: step_bytes(
  ...   Exemplars(jnp.ones((n, 8, 8, 3)), jnp.zeros(n, int)), variables,
  ...   apply_fn=apply_fn)
  >>> round(size(200) / size(100), 1)
  2.0
  """
  config = dataclasses.replace(
    config, inner_steps=1, remat="none", augment=None, inner_batch_size=None
  )

  def residuals(exemplars, variables):
    base_level = lambda images: unroll(
      exemplars._replace(images=images),
      variables,
      apply_fn=apply_fn,
      config=config,
    )
    return jax.tree.leaves(jax.vjp(base_level, exemplars.images)[1])

  leaves = jax.eval_shape(residuals, exemplars, variables)
  return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)


def device_bytes() -> int:
  """Memory of a device.

  >>> device_bytes() > 2**20
  True
  """
  device = jax.local_devices()[0]
  stats = device.memory_stats()
  if stats:
    return stats["bytes_limit"]
  # A CPU keeps no statistics; its devices share the machine's memory.
  whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  return whole // jax.local_device_count()


def check_hypergradient(
  key: Array,
  exemplars: Exemplars,
  variables: Variables,
  batch: Data,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  method: Literal["auto", "forward", "finite"] = "auto",
  epsilon: float = 1e-5,
  **kwargs: Any,
) -> HypergradientCheck:
  """Relative error of the hypergradient along a random direction.

  The reference is computed in float64 whatever the inputs are, so the error is
  that of the inputs' precision: about 1e-4 in float32, unless the model itself
  casts, has kinks near the exemplars (finite differences step across them),
  or the gradient is truncated, which is meant to differ.

  >>> apply_fn = lambda variables, x: x[:, 0, 0] @ variables["params"]["w"]
  >>> variables = {"params": {"w": jnp.zeros((1, 2))}}
  >>> white = Exemplars(jnp.ones((1, 1, 1, 1)), jnp.array([0]))
  >>> check = check_hypergradient(
  ...   jax.random.key(0), white, variables, white, apply_fn=apply_fn)
  >>> check.error < 1e-3, check.method
  (True, 'forward')

  Args:
    method: `forward`, `finite`, or `auto`: forward mode where the model allows
      it (a `jax.custom_vjp` may not), finite differences otherwise.
    epsilon: step of the finite differences, in [0, 1] pixel space.
    key: the direction, and the randomness of the config if it has any.
    **kwargs: those of `hypergradient`.
  """
  direction_key, run_key = jax.random.split(key)
  hyper = functools.partial(hypergradient, apply_fn=apply_fn, config=config)
  args = exemplars, variables, as_data(batch), {"key": run_key, **kwargs}
  direction = jax.random.normal(direction_key, exemplars.images.shape)

  def gradient(exemplars, variables, batch, kwargs):
    return hyper(exemplars, variables, batch, **kwargs)[1]

  gradients = np.asarray(jax.jit(gradient)(*args), np.float64)
  direction = np.asarray(direction, np.float64)
  reverse = float(np.sum(gradients * direction))

  with jax.enable_x64(True):
    exemplars, variables, batch, kwargs = jax.tree.map(_double, args)
    tangent = jnp.asarray(direction)

    @jax.jit
    def loss(images):
      moved = exemplars._replace(images=images)
      return hyper(moved, variables, batch, **kwargs)[0]

    used = "finite" if method == "finite" else "forward"
    if used == "forward":
      try:
        reference = jax.jvp(loss, (exemplars.images,), (tangent,))[1]
      except TypeError as error:
        if method == "forward":
          raise TypeError(
            "Forward mode cannot pass this model, most likely because of a "
            'jax.custom_vjp: use method="finite".'
          ) from error
        used = "finite"
    if used == "finite":
      images, step = exemplars.images, epsilon * tangent
      reference = (loss(images + step) - loss(images - step)) / (2 * epsilon)
    reference = float(reference)
  # Along a standard normal direction the norm is the derivative's typical size;
  # an accidentally flat direction must not magnify rounding.
  norm = float(np.linalg.norm(gradients))
  scale = max(norm, abs(reverse), abs(reference), np.finfo(np.float64).tiny)
  error = abs(reverse - reference) / scale
  return HypergradientCheck(error, reverse, reference, used)


def _double(x):
  """Floats as float64; integers, masks and keys as they are."""
  if jnp.issubdtype(x.dtype, jnp.floating):
    return jnp.asarray(np.asarray(x, np.float64))
  return x
