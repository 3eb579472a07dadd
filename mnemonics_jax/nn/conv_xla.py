"""The three maps of a convolution by means of XLA.

On accelerators they are plain convolutions. On a CPU they are written in the one
layout for which XLA has fast kernels everywhere: it brings other layouts into this
one only outside of loops, and in the body of a scan or while loop the gradients that
`lax.conv_general_dilated` derives take up to 100 times longer. The gradient of the
kernel is made of matrix products there, which halves its time.
"""

from functools import partial
import math

import jax
from jax import lax
import jax.numpy as jnp

from mnemonics_jax.parallel import mesh


def vary_alike(*arrays):
  """Inside shard_map, declares arrays as varying over each other's mesh axes.

  A kernel is the same on all devices where images differ. The declaration's
  transpose is the sum over devices that the kernel's gradient needs.

  >>> vary_alike(1.0, 2.0)  # Outside of shard_map they are what they are.
  (1.0, 2.0)
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


def conv(x, w, geometry):
  """The convolution itself.

  >>> from mnemonics_jax.nn.geometry import Geometry
  >>> geometry = Geometry(size=(2, 2), kernel=3, stride=1, padding=1)
  >>> y = conv(jnp.ones((1, 2, 2, 1)), jnp.ones((3, 3, 1, 1)), geometry)
  >>> y.ravel().tolist()
  [4.0, 4.0, 4.0, 4.0]
  """
  _, _, s, p = geometry
  return lax.conv_general_dilated(
    x, w, (s, s), ((p, p), (p, p)), dimension_numbers=_LAYOUT
  )


def conv_dx(g, w, geometry):
  """The gradient of the images, as XLA derives it.

  >>> from mnemonics_jax.nn.geometry import Geometry
  >>> geometry = Geometry(size=(2, 2), kernel=3, stride=1, padding=1)
  >>> a, b = jnp.ones((1, 2, 2, 1)), jnp.ones((3, 3, 1, 1))
  >>> conv_dx(a, b, geometry).shape
  (1, 2, 2, 1)
  """
  shape = (len(g), *geometry.size, w.shape[2])
  # Made from g, because the type of an array says how it is spread on a mesh.
  x = jax.eval_shape(lambda: jnp.broadcast_to(g[:, :1, :1, :1], shape))
  return jax.linear_transpose(lambda x: conv(x, w, geometry), x)(g)[0]


def conv_dw(x, g, geometry):
  """The gradient of the kernel, as XLA derives it.

  >>> from mnemonics_jax.nn.geometry import Geometry
  >>> geometry = Geometry(size=(2, 2), kernel=3, stride=1, padding=1)
  >>> a, b = jnp.ones((1, 2, 2, 1)), jnp.ones((1, 2, 2, 1))
  >>> conv_dw(a, b, geometry).shape
  (3, 3, 1, 1)
  """
  shape = (geometry.kernel, geometry.kernel, x.shape[3], g.shape[3])
  w = jax.eval_shape(lambda: vary_alike(jnp.zeros(shape, x.dtype), x)[0])
  return jax.linear_transpose(lambda w: conv(x, w, geometry), w)(g)[0]


# The gradients on a CPU.


def conv_dx_cpu(g, w, geometry):
  """A convolution of the spread output gradient with the turned kernel.

  >>> from mnemonics_jax.nn.geometry import Geometry
  >>> geometry = Geometry(size=(2, 2), kernel=3, stride=1, padding=1)
  >>> a, b = jnp.ones((1, 2, 2, 1)), jnp.ones((3, 3, 1, 1))
  >>> conv_dx_cpu(a, b, geometry).shape
  (1, 2, 2, 1)
  """
  size, k, s, p = geometry
  pads = [
    (k - 1 - p, n + p - 1 - s * (m - 1))
    for n, m in zip(size, geometry.out_size, strict=True)
  ]
  return lax.conv_general_dilated(
    g,
    w[::-1, ::-1].swapaxes(2, 3),
    (1, 1),
    pads,
    lhs_dilation=(s, s),
    dimension_numbers=_LAYOUT,
  )


_CHUNK_BYTES = 1 << 19  # shifted copies of one chunk: a part of the L2 cache


def conv_dw_cpu(x, g, geometry):
  """Sums matrix products over chunks of the batch that fit the cache.

  Each device sums over its own part of the batch: a loop over all of it would
  make every device fetch the others' parts.

  >>> from mnemonics_jax.nn.geometry import Geometry
  >>> geometry = Geometry(size=(2, 2), kernel=3, stride=1, padding=1)
  >>> a, b = jnp.ones((1, 2, 2, 1)), jnp.ones((1, 2, 2, 1))
  >>> conv_dw_cpu(a, b, geometry).shape
  (3, 3, 1, 1)
  """
  lanes = mesh.device_count()
  if lanes == 1 or len(x) % lanes:
    return _sum_products(x, g, geometry)
  x, g = (a.reshape(lanes, -1, *a.shape[1:]) for a in (x, g))
  return jax.vmap(partial(_sum_products, geometry=geometry))(x, g).sum(0)


def _sum_products(x, g, geometry):
  n, k, (c, o) = len(x), geometry.kernel, (x.shape[3], g.shape[3])
  dtype = jnp.promote_types(x.dtype, jnp.float32)
  image_bytes = k * (c + o) * math.prod(geometry.out_size) * dtype.itemsize
  limit = max(1, _CHUNK_BYTES // image_bytes)
  sizes = [m for m in range(1, min(n, limit) + 1) if n % m == 0]
  chunk = max(sizes, default=1)

  def add(total, images):
    x, g = (a.astype(dtype) for a in images)
    return total + _dw_products(x, g, geometry), None

  chunks = [a.reshape(n // chunk, chunk, *a.shape[1:]) for a in (x, g)]
  total, _ = lax.scan(add, jnp.zeros((k, k, c, o), dtype), chunks)
  return total.astype(x.dtype)


def _dw_products(x, g, geometry):
  """Kernel gradient as k products, one for each row of the kernel.

  Channels come first in the left factor, pixels first in the right one: the
  orientation for which XLA has its fastest kernel. The left factor stacks the k
  column shifts of x. The row shifts are taken of g if the stride is 1, since
  then the left factor is the same for all rows of the kernel.
  """
  (_, k, s, p), (c, o) = geometry, (x.shape[3], g.shape[3])
  x = x.transpose(3, 0, 1, 2)
  if s == 1:
    left = [_stack_shifts(x, geometry)] * k
    right = _shifts(g, 1, x.shape[2], k, 1, k - 1 - p)[::-1]
  else:
    rows = _shifts(x, 2, g.shape[1], k, s, p)
    left = [_stack_shifts(x, geometry) for x in rows]
    right = [g] * k
  dw = [a @ b.reshape(-1, o) for a, b in zip(left, right, strict=True)]
  return jnp.stack(dw).reshape(k, k, c, o)


def _stack_shifts(x, geometry):
  """Column shifts of channels-first images as rows [k c] of a matrix."""
  _, k, s, p = geometry
  shifts = _shifts(x, 3, geometry.out_size[1], k, s, p)
  return jnp.concatenate(shifts).reshape(k * len(x), -1)


def _shifts(x, axis, n, k, stride, padding):
  """The k windows of n entries that a kernel's taps see along one axis."""
  pads = [(0, 0, 0)] * x.ndim
  pads[axis] = (padding, padding, 0)
  x = lax.pad(x, jnp.zeros((), x.dtype), pads)
  reach = (n - 1) * stride + 1
  return [lax.slice_in_dim(x, i, i + reach, stride, axis) for i in range(k)]
