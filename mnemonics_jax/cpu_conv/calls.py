"""Chooses how this process convolves on a CPU, and calls the kernels from JAX.

MNEMONICS_CPU_CONV decides: `native` requires the kernels in C++, `xla` leaves
convolutions to XLA, and `auto`, the default, uses the kernels where they can be built.
The kernels take float32. XLA does the rest: other types, empty arrays, and arrays with
explicit sharding.
"""

from collections.abc import Callable
import ctypes
import functools
import os
import threading
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import AxisType
import numpy as np

from mnemonics_jax import files
from mnemonics_jax.cpu_conv import build, forms
from mnemonics_jax.errors import UserError
from mnemonics_jax.parallel import mesh

VARIABLE = "MNEMONICS_CPU_CONV"
WISHES = ("auto", "native", "xla")

# Each map by means of XLA, and the shape of its result.
_XLA: dict[str, Callable[..., Any]] = {
  "conv2d": forms.conv,
  "conv2d_dx": forms.conv_dx,
  "conv2d_dw": forms.conv_dw,
}
_SHAPES = {
  "conv2d": lambda x, w, geometry: (len(x), *geometry.out_size, w.shape[3]),
  "conv2d_dx": lambda g, w, geometry: (len(g), *geometry.size, w.shape[2]),
  "conv2d_dw": lambda x, g, geometry: (
    *(geometry.kernel, geometry.kernel),
    *(x.shape[3], g.shape[3]),
  ),
}
MAPS = tuple(_XLA)


class Choice(NamedTuple):
  """How convolutions are computed on a CPU.

  Attributes:
    name: `xla`, or `native-` and a hash of the library's sources. With equal names,
      equal programs give equal bits.
    note: a message for the user about the choice.
  """

  name: str
  note: str | None = None

  @property
  def is_native(self) -> bool:
    """Whether the kernels in C++ are used."""
    return self.name != "xla"

  def target(self, name: str) -> str:
    """XLA's name of one of the maps.

    It contains the choice's name, because compiled programs are cached by it.
    """
    return f"mnemonics-{self.name}-{name}"


def choose() -> Choice:
  """The choice of this process; the first call may compile for some seconds.

  Raises:
    UserError: MNEMONICS_CPU_CONV is unknown, or `native` and there are no kernels.
  """
  with _LOCK:
    return _choose()


def news() -> str | None:
  """The note of the choice at the first call; then None."""
  note = choose().note
  if _SAID.is_set():
    return None
  _SAID.set()
  return note


_LOCK, _SAID = threading.Lock(), threading.Event()


@functools.cache
def _choose():
  wish = os.environ.get(VARIABLE) or WISHES[0]
  if wish not in WISHES:
    raise UserError(
      VARIABLE,
      f"{VARIABLE}={wish} is none of {', '.join(WISHES)}",
      "leave it out for auto",
    )
  if wish == "xla":
    return Choice("xla")
  try:
    return _load()
  except build.BuildError as error:
    if wish == "native":
      raise UserError(
        VARIABLE,
        f"{VARIABLE}=native, but {error}",
        "install g++, or leave the variable out",
      ) from error
    return Choice(
      "xla",
      f"{error}, so convolutions are left to XLA: steps take longer, results"
      " are the same up to rounding.",
    )


def _load():
  path, seconds = build.library(files.user_cache() / "native")
  choice = Choice(path.stem.rpartition("-")[0].replace("conv", "native"))
  try:
    library = ctypes.CDLL(str(path))
  except OSError as error:
    raise build.BuildError(f"{path} cannot be loaded ({error})") from error
  for name in MAPS:
    function = jax.ffi.pycapsule(getattr(library, name))
    jax.ffi.register_ffi_target(choice.target(name), function, platform="cpu")
  if not seconds:
    return choice
  note = (
    f"convolutions were compiled for this machine in {seconds:.0f} s, once."
  )
  return choice._replace(note=note)


def form(name: str) -> Callable[..., Any]:
  """One of the `MAPS`, of two arrays and a geometry, as a CPU computes it."""

  def compute(a, b, geometry):
    result = jax.ShapeDtypeStruct(_SHAPES[name](a, b, geometry), a.dtype)
    chosen = choose() if _suits(a, b, result) else None
    if chosen is None or not chosen.is_native:
      return _XLA[name](a, b, geometry)

    def call(a, b):
      # Within `map_shares`, a device has a share of the images.
      result = jax.ShapeDtypeStruct(_SHAPES[name](a, b, geometry), a.dtype)
      numbers = dict(stride=geometry.stride, padding=geometry.padding)
      return jax.ffi.ffi_call(chosen.target(name), result)(
        a, b, **{key: np.int64(value) for key, value in numbers.items()}
      )

    # XLA cannot split a call: it would send all images to all devices.
    if name == "conv2d_dw":
      return mesh.sum_shares(call, a, b)
    return mesh.map_shares(call, a, b)

  return compute


def _suits(*arrays):
  # Operands have lost their sharding types here: calls would gather arrays with
  # explicit sharding.
  spread = AxisType.Explicit in jax.sharding.get_abstract_mesh().axis_types
  return not spread and all(a.dtype == jnp.float32 and a.size for a in arrays)
