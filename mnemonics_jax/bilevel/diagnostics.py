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
from mnemonics_jax.bilevel.config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.data import Data, as_data
from mnemonics_jax.types import Exemplars, Variables


class MemoryEstimate(NamedTuple):
  """Bytes the compiled hypergradient occupies, arguments included.

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

  Attributes:
    error: difference of the two, relative to the norm of the hypergradient or
      to the larger of them.
    reverse: from the hypergradient, as the meta loop uses it.
    reference: from `method`, in float64.
    method: `forward` (forward-mode differentiation through the unroll) or
      `finite` (central differences).
    verdict: `right`; `kinks`, right but for activations on a kink; `truncated`,
      different because `truncate` means it to be; `unsure`, for central
      differences step across kinks; or `wrong`.
    error_aside: the error in float64 and a little aside, where no activation is on
      a kink; 0 if the first error left no question.
  """

  error: float
  reverse: float
  reference: float
  method: str
  verdict: Literal["right", "kinks", "truncated", "unsure", "wrong"] = "right"
  error_aside: float = 0.0

  @property
  def right(self) -> bool:
    """Whether the hypergradient is that of the model it was computed for."""
    return self.verdict in ("right", "kinks")

  @property
  def explanation(self) -> str:
    """The verdict in words."""
    error = f"{self.error:.1g}"
    return {
      "right": f"The hypergradient is right; it differs by {error}.",
      "kinks": (
        f"The hypergradient differs by {error}, which is expected: activations"
        " are on kinks, as ReLU has at 0, where derivatives jump and every program"
        " takes one of two. A little aside, where none is, it is right"
        f" ({self.error_aside:.1g})."
      ),
      "truncated": (
        f"The hypergradient differs by {error}, for `truncate` leaves out steps;"
        " check it without."
      ),
      "unsure": (
        f"The hypergradient differs by {error} from central differences, and these"
        " from those of another step: the model has kinks, where its gradients,"
        ' and so the meta loss, jump. Use method="forward" if the model allows it.'
      ),
      "wrong": (
        f"The hypergradient is wrong by {error}; look at custom derivatives"
        " (jax.custom_vjp) of the model."
      ),
    }[self.verdict]


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
  """Memory of a device."""
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
  """Whether the hypergradient is right, along a random direction.

  The reference is computed in float64 whatever the inputs are, so the error is
  that of the inputs' precision: below 1e-4 in float32 for smooth models (tanh, a
  smooth loss). With kinks (ReLU, max-pooling) it may be some percent: images with
  a black background put activations exactly on them. The verdict tells this apart
  from derivatives that are wrong.

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
  normal = jax.random.normal(direction_key, exemplars.images.shape)
  direction = np.asarray(normal, np.float64)
  compare = functools.partial(_compare, hyper, args, direction, method)
  found = compare(epsilon)
  if found.error < _RIGHT:
    return found
  # Noise takes activations off their kinks, but cannot mend a derivative.
  aside = compare(epsilon, jax.random.fold_in(key, 2))
  verdict = "truncated" if config.truncate is not None else "wrong"
  if aside.error < _RIGHT:
    verdict = "kinks"
  elif verdict == "wrong" and found.method == "finite":
    other = compare(epsilon / 10).reference
    if not abs(other - found.reference) < _RIGHT * abs(found.reference):
      verdict = "unsure"
  return found._replace(verdict=verdict, error_aside=aside.error)


_RIGHT, _ASIDE = 1e-3, 1e-3


def _compare(hyper, args, direction, method, epsilon, aside_key=None):
  """The derivative along a direction; with a key in float64, and aside."""

  @jax.jit
  def gradient(exemplars, variables, batch, kwargs):
    return hyper(exemplars, variables, batch, **kwargs)[1]

  gradients = None if aside_key is not None else gradient(*args)
  with jax.enable_x64(True):
    exemplars, variables, batch, kwargs = jax.tree.map(_double, args)
    if aside_key is not None:
      exemplars = exemplars._replace(
        images=_move_aside(aside_key, exemplars.images)
      )
      variables = _move_aside(aside_key, variables)
      gradients = gradient(exemplars, variables, batch, kwargs)
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
  gradients = np.asarray(gradients, np.float64)
  reverse = float(np.sum(gradients * direction))
  # Along a standard normal direction the norm is the derivative's typical size;
  # an accidentally flat direction must not magnify rounding.
  norm = float(np.linalg.norm(gradients))
  scale = max(norm, abs(reverse), abs(reference), np.finfo(np.float64).tiny)
  error = abs(reverse - reference) / scale
  return HypergradientCheck(error, reverse, reference, used)


def _move_aside(key, tree):
  """A tree whose floats are a little other ones, still within [0, 1] if so."""

  def move(leaf):
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
      return leaf
    noise = _ASIDE * jax.random.uniform(key, leaf.shape, leaf.dtype)
    return jnp.where(leaf > 0.5, leaf - noise, leaf + noise)

  return jax.tree.map(move, tree)


def _double(x):
  """Floats as float64; integers, masks and keys as they are."""
  if jnp.issubdtype(x.dtype, jnp.floating):
    return jnp.asarray(np.asarray(x, np.float64))
  return x
