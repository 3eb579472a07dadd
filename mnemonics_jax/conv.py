"""Two-dimensional convolution closed under differentiation.

A convolution `y = conv(x, w)` is bilinear, and so are its two gradients. With
the geometry (input size, kernel size, stride, padding) fixed, the three maps

    conv(x, w) -> y        conv_dx(g, w) -> dx        conv_dw(x, g) -> dw

are the three ways of solving one trilinear form <g, conv(x, w)> for one of its
arguments, so every derivative of one of them is another of them. Here each is a
JAX primitive whose tangents and cotangents are written through the other two:
derivatives of any order, forward or reverse, stay within these three maps.

Elsewhere they are plain XLA convolutions. On a CPU the gradients that XLA
derives (dilated convolutions, and convolutions with the batch as channels) are
slow, those of second order hopelessly so; there the three maps use the forms in
the second half of this file.
"""

from functools import partial
from typing import NamedTuple

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
import jax.numpy as jnp
from jaxtyping import Array, Float


class Geometry(NamedTuple):
  """What the three maps of one convolution share; static and hashable.

  Attributes:
    size: height and width of the input.
    kernel: height and width of the square kernel.
    stride: step between outputs, both directions.
    padding: zeros on each of the four sides.
  """

  size: tuple[int, int]
  kernel: int
  stride: int
  padding: int

  @property
  def out_size(self) -> tuple[int, int]:
    reach = 2 * self.padding - self.kernel
    h, w = ((n + reach) // self.stride + 1 for n in self.size)
    return h, w


def conv2d(
  x: Float[Array, "n h w c"],
  w: Float[Array, "k k c o"],
  *,
  stride: int = 1,
  padding: int | None = None,
) -> Float[Array, "n h2 w2 o"]:
  """Convolution with a square kernel and equal padding on all four sides.

  Args:
    x: images, channels last.
    w: kernel, in height, width, input, output order.
    stride: step between outputs.
    padding: zeros on each side; None means k // 2, which keeps the extent for
      odd k and stride 1.

  Returns:
    The images' responses, differentiable to any order in both arguments.
  """
  if x.ndim != 4 or w.ndim != 4:
    raise ValueError(
      "conv2d takes images [n, h, w, c] and a kernel [k, k, c, o], not shapes "
      f"{x.shape} and {w.shape}; add a batch axis with x[None]?"
    )
  if w.shape[0] != w.shape[1] or w.shape[2] != x.shape[3]:
    raise ValueError(
      f"a kernel for {x.shape[3]} channels has the shape "
      f"[k, k, {x.shape[3]}, o], not {w.shape}"
    )
  if x.dtype != w.dtype:
    raise TypeError(
      f"images are {x.dtype} but the kernel is {w.dtype}; cast one of them"
    )
  k = w.shape[0]
  geometry = Geometry(
    x.shape[1:3], k, stride, k // 2 if padding is None else padding
  )
  if min(geometry.out_size) < 1:
    raise ValueError(f"the kernel does not fit into the image: {geometry}")
  return conv_p.bind(x, w, geometry=geometry)


# The maps as plain XLA convolutions.


def _conv_xla(x, w, stride, padding):
  return lax.conv_general_dilated(
    x,
    w,
    (stride, stride),
    padding,
    dimension_numbers=("NHWC", "HWIO", "NHWC"),
  )


def _conv(x, w, geometry):
  _, _, s, p = geometry
  return _conv_xla(x, w, s, ((p, p), (p, p)))


def _conv_dx(g, w, geometry):
  x = jax.ShapeDtypeStruct((len(g), *geometry.size, w.shape[2]), g.dtype)
  return jax.linear_transpose(lambda x: _conv(x, w, geometry), x)(g)[0]


def _conv_dw(x, g, geometry):
  k = geometry.kernel
  w = jax.ShapeDtypeStruct((k, k, x.shape[3], g.shape[3]), x.dtype)
  return jax.linear_transpose(lambda w: _conv(x, w, geometry), w)(g)[0]


# The maps as fast forms for the CPU.


def _conv_cpu(x, w, geometry):
  (_, k, s, p), (c, o) = geometry, w.shape[2:]
  if (k, p) == (1, 0):
    x = x[:, ::s, ::s]
    return (x.reshape(-1, c) @ w[0, 0]).reshape(*x.shape[:3], o)
  return _conv(x, w, geometry)


def _conv_dx_cpu(g, w, geometry):
  (size, k, s, p), (c, o) = geometry, w.shape[2:]
  n, h, v, _ = g.shape
  if (k, p) == (1, 0):
    dx = (g.reshape(-1, o) @ w[0, 0].T).reshape(n, h, v, c)
    spread = [(0, a - (b - 1) * s - 1, s - 1) for a, b in zip(size, (h, v))]
    return lax.pad(
      dx, jnp.zeros((), g.dtype), [(0, 0, 0), *spread, (0, 0, 0)]
    )
  if s == 1:
    pads = [(k - 1 - p, k - 1 - p)] * 2
    return _conv_xla(g, w[::-1, ::-1].swapaxes(2, 3), 1, pads)
  return _conv_dx(g, w, geometry)


def _conv_dw_cpu(x, g, geometry):
  return _conv_dw(x, g, geometry)


# The primitives.


def _free_axes(prim):
  """Axes of (lhs, rhs) and of the result that the other operand never meets."""
  n, c, o = 0, 2, 3  # the kernel's channels; images have theirs last
  return {
    conv_p: ((n, n), (o, 3)),
    conv_dx_p: ((n, n), (c, 3)),
    conv_dw_p: ((3, c), (3, o)),
  }[prim]


def _primitive(name, plain, fast):
  prim = Primitive(name)

  @partial(jax.jit, static_argnames="geometry")
  def evaluate(lhs, rhs, geometry):
    return prim.bind(lhs, rhs, geometry=geometry)

  def abstract(lhs, rhs, geometry):
    return jax.make_jaxpr(partial(plain, geometry=geometry))(
      lhs, rhs
    ).out_avals[0]

  def batch(args, axes, geometry):
    """A mapped axis of one operand joins an axis the other one never meets."""
    mapped = [axis is not None for axis in axes]
    if all(mapped):
      return jax.vmap(partial(plain, geometry=geometry), axes)(*args), 0
    side = mapped.index(True)
    into, out = _free_axes(prim)[side]
    arg = jnp.moveaxis(args[side], axes[side], into)
    size = arg.shape[into]
    arg = arg.reshape(
      *arg.shape[:into], -1, *arg.shape[into + 2 :]
    )
    operands = [arg, args[1]] if side == 0 else [args[0], arg]
    y = prim.bind(*operands, geometry=geometry)
    return y.reshape(*y.shape[:out], size, -1, *y.shape[out + 1 :]), out

  def lower(lhs, rhs, geometry):
    # Narrow floats have no fast CPU kernels to gain from.
    form = plain if lhs.dtype == jnp.bfloat16 else fast
    return form(lhs, rhs, geometry)

  prim.def_impl(evaluate)
  prim.def_abstract_eval(abstract)
  batching.primitive_batchers[prim] = batch
  mlir.register_lowering(prim, mlir.lower_fun(plain, multiple_results=False))
  mlir.register_lowering(
    prim, mlir.lower_fun(lower, multiple_results=False), platform="cpu"
  )
  return prim


conv_p = _primitive("conv2d", _conv, _conv_cpu)
conv_dx_p = _primitive("conv2d_dx", _conv_dx, _conv_dx_cpu)
conv_dw_p = _primitive("conv2d_dw", _conv_dw, _conv_dw_cpu)

ad.defbilinear(
  conv_p,
  lambda g, x, w, geometry: conv_dx_p.bind(g, w, geometry=geometry),
  lambda g, x, w, geometry: conv_dw_p.bind(x, g, geometry=geometry),
)
ad.defbilinear(
  conv_dx_p,
  lambda u, g, w, geometry: conv_p.bind(u, w, geometry=geometry),
  lambda u, g, w, geometry: conv_dw_p.bind(u, g, geometry=geometry),
)
ad.defbilinear(
  conv_dw_p,
  lambda v, x, g, geometry: conv_dx_p.bind(g, v, geometry=geometry),
  lambda v, x, g, geometry: conv_p.bind(x, v, geometry=geometry),
)
