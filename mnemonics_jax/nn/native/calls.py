"""The three native maps as JAX sees them.

float32 on a CPU is theirs. XLA's own forms do the rest: other types, empty
arrays, arrays whose type says how they are spread over devices.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
import numpy as np

from mnemonics_jax.nn.native import choice
from mnemonics_jax.parallel import mesh

Form = Callable[..., Any]


def native_or(name: str, otherwise: Form) -> Form:
  """The map `name` of two arrays and a geometry, native where that is possible.

  Args:
    name: `conv2d`, `conv2d_dx` or `conv2d_dw`.
    otherwise: the same by means of XLA.
  """

  def form(a, b, geometry):
    result = jax.ShapeDtypeStruct(_RESULTS[name](a, b, geometry), a.dtype)
    chosen = choice.choose() if _suits(a, b, result) else None
    if chosen is None or not chosen.is_native:
      return otherwise(a, b, geometry)

    def call(a, b):
      # A device may have a share of the images only.
      result = jax.ShapeDtypeStruct(_RESULTS[name](a, b, geometry), a.dtype)
      numbers = dict(stride=geometry.stride, padding=geometry.padding)
      return jax.ffi.ffi_call(chosen.target(name), result)(
        a, b, **{key: np.int64(value) for key, value in numbers.items()}
      )

    # XLA cannot cut a call into parts: it would send all images to all devices.
    if name == "conv2d_dw":
      return mesh.sum_shares(call, a, b)
    return mesh.map_shares(call, a, b)

  return form


def _suits(*arrays):
  # Operands have lost their types' account of where they are: calls of arrays
  # that are explicitly spread would gather them.
  spread = AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types
  return not spread and all(a.dtype == jnp.float32 and a.size for a in arrays)


_RESULTS = {
  "conv2d": lambda x, w, geometry: (len(x), *geometry.out_size, w.shape[3]),
  "conv2d_dx": lambda g, w, geometry: (len(g), *geometry.size, w.shape[2]),
  "conv2d_dw": lambda x, g, geometry: (
    *(geometry.kernel, geometry.kernel),
    *(x.shape[3], g.shape[3]),
  ),
}
