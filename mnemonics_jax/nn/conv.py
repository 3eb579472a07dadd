"""Two-dimensional convolution closed under differentiation.

A convolution `y = conv(x, w)` is bilinear, and so are its two gradients. With
the geometry (input size, kernel size, stride, padding) fixed, the three maps

    conv(x, w) -> y        conv_dx(g, w) -> dx        conv_dw(x, g) -> dw

are the three ways of solving one trilinear form <g, conv(x, w)> for one of its
arguments, so every derivative of one of them is another of them. Here each is a
JAX primitive whose tangents and cotangents are written through the other two:
derivatives of any order, forward or reverse, stay within these three maps.

Accelerators run them as plain XLA convolutions. CPUs have forms of their own, in
`mnemonics_jax/cpu_conv`.
"""

from functools import partial
from typing import NamedTuple

import jax
from jax import lax
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
import jax.numpy as jnp
from jaxtyping import Array, Float

from mnemonics_jax import cpu_conv


def conv2d(
  x: Float[Array, "n h w c"],
  w: Float[Array, "k k c o"],
  *,
  stride: int = 1,
  padding: int | None = None,
) -> Float[Array, "n h2 w2 o"]:
  """Convolution with a square kernel and equal padding on all four sides.

  >>> x, w = jnp.ones((1, 3, 3, 1)), jnp.ones((3, 3, 1, 1))
  >>> conv2d(x, w)[0, ..., 0].tolist()
  [[4.0, 6.0, 4.0], [6.0, 9.0, 6.0], [4.0, 6.0, 4.0]]

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
  (_, height, width, _), k = x.shape, len(w)
  padding = k // 2 if padding is None else padding
  geometry = Geometry((height, width), k, stride, padding)
  if min(geometry.out_size) < 1:
    raise ValueError(f"the kernel does not fit into the image: {geometry}")
  x, w = _vary_alike(x, w)
  return _conv_p.bind(x, w, geometry=geometry)


class Geometry(NamedTuple):
  """What the three maps of one convolution share; static and hashable.

  >>> Geometry(size=(32, 32), kernel=3, stride=2, padding=1).out_size
  (16, 16)

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
    """Height and width of the output."""
    reach = 2 * self.padding - self.kernel
    h, w = ((n + reach) // self.stride + 1 for n in self.size)
    return h, w


# The three maps on accelerators.


def _vary_alike(*arrays):
  """Inside shard_map, declares arrays as varying over each other's mesh axes.

  A kernel is the same on all devices where images differ. The declaration's
  transpose is the sum over devices that the kernel's gradient needs.
  """
  if not jax.sharding.get_abstract_mesh().manual_axes:
    return arrays
  varying = [jax.typeof(a).manual_axis_type.varying for a in arrays]
  missing = [tuple(frozenset().union(*varying) - axes) for axes in varying]
  return [
    lax.pcast(a, axes, to="varying") if axes else a
    for a, axes in zip(arrays, missing, strict=True)
  ]


_LAYOUT = ("NHWC", "HWIO", "NHWC")


def _conv(x, w, geometry):
  """The convolution itself."""
  _, _, s, p = geometry
  return lax.conv_general_dilated(
    x, w, (s, s), ((p, p), (p, p)), dimension_numbers=_LAYOUT
  )


def _conv_dx(g, w, geometry):
  """The gradient of the images, as XLA derives it."""
  shape = (len(g), *geometry.size, w.shape[2])
  # Made from g, because the type of an array says how it is spread on a mesh.
  x = jax.eval_shape(lambda: jnp.broadcast_to(g[:, :1, :1, :1], shape))
  return jax.linear_transpose(lambda x: _conv(x, w, geometry), x)(g)[0]


def _conv_dw(x, g, geometry):
  """The gradient of the kernel, as XLA derives it."""
  shape = (geometry.kernel, geometry.kernel, x.shape[3], g.shape[3])
  w = jax.eval_shape(lambda: _vary_alike(jnp.zeros(shape, x.dtype), x)[0])
  return jax.linear_transpose(lambda w: _conv(x, w, geometry), w)(g)[0]


# The primitives.


def _primitive(name, form, free_axes):
  """A bilinear primitive, lowered to `form` unless told otherwise.

  Args:
    name: how the primitive is called in a jaxpr.
    form: the map itself, of two arrays and a geometry.
    free_axes: for each operand an axis that the other operand never meets, and
      the axis of the result where it reappears.
  """
  prim = Primitive(name)

  @partial(jax.jit, static_argnames="geometry")
  def evaluate(a, b, geometry):
    return prim.bind(a, b, geometry=geometry)

  def abstract(a, b, geometry):
    jaxpr = jax.make_jaxpr(partial(form, geometry=geometry))(a, b)
    return jaxpr.out_avals[0]

  def batch(operands, axes, geometry):
    if None not in axes:
      pairs = [
        jnp.moveaxis(a, i, 0) for a, i in zip(operands, axes, strict=True)
      ]
      return lax.map(lambda ab: prim.bind(*ab, geometry=geometry), pairs), 0
    # Images of one batch do not meet, nor do kernels of different channels: the
    # mapped axis of a single operand can join those.
    i = 0 if axes[1] is None else 1
    axis, out = free_axes[i]
    mapped = jnp.moveaxis(operands[i], axes[i], axis)
    shape = mapped.shape
    merged = mapped.reshape(*shape[:axis], -1, *shape[axis + 2 :])
    operands = [merged if j == i else a for j, a in enumerate(operands)]
    y = prim.bind(*operands, geometry=geometry)
    split = (shape[axis], shape[axis + 1])
    return y.reshape(*y.shape[:out], *split, *y.shape[out + 1 :]), out

  prim.def_impl(evaluate)
  prim.def_abstract_eval(abstract)
  batching.primitive_batchers[prim] = batch
  mlir.register_lowering(prim, _lower(form))
  return prim


def _lower(form):
  """Lowering rule that sees shapes only and leaves meshes to XLA."""
  rule = mlir.lower_fun(form, multiple_results=False)

  def lower(ctx, *operands, geometry):
    avals = [ShapedArray(a.shape, a.dtype) for a in ctx.avals_in]
    return rule(ctx.replace(avals_in=avals), *operands, geometry=geometry)

  return lower


_conv_p = _primitive("conv2d", _conv, ((0, 0), (3, 3)))
_conv_dx_p = _primitive("conv2d_dx", _conv_dx, ((0, 0), (2, 3)))
_conv_dw_p = _primitive("conv2d_dw", _conv_dw, ((3, 2), (3, 3)))
for _map in (_conv_p, _conv_dx_p, _conv_dw_p):
  _on_cpu = _lower(cpu_conv.form(_map.name))
  mlir.register_lowering(_map, _on_cpu, platform="cpu")

# Each pair: the cotangent of the first operand, then that of the second.
ad.defbilinear(
  _conv_p,
  lambda g, x, w, geometry: _conv_dx_p.bind(g, w, geometry=geometry),
  lambda g, x, w, geometry: _conv_dw_p.bind(x, g, geometry=geometry),
)
ad.defbilinear(
  _conv_dx_p,
  lambda x, g, w, geometry: _conv_p.bind(x, w, geometry=geometry),
  lambda x, g, w, geometry: _conv_dw_p.bind(x, g, geometry=geometry),
)
ad.defbilinear(
  _conv_dw_p,
  lambda w, x, g, geometry: _conv_dx_p.bind(g, w, geometry=geometry),
  lambda w, x, g, geometry: _conv_p.bind(x, w, geometry=geometry),
)
