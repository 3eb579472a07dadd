"""The three maps of a convolution, written for XLA on a CPU.

They use the one layout for which XLA has fast kernels. XLA converts other layouts only
outside of loops: in a scan or while loop, the gradients that
`lax.conv_general_dilated` derives take up to 100 times longer. The gradient of the
kernel is a sum of matrix products, which halves its time. Neighbouring pixels with few
channels are computed together.
"""

from functools import partial
import math

from jax import lax
import jax.numpy as jnp

from mnemonics_jax.parallel import mesh

_LAYOUT = ("NHWC", "HWIO", "NHWC")


def conv(x, w, geometry):
  """The convolution itself, neighbours of few channels together."""
  _, _, s, p = geometry
  return _correlate(x, w, s, ((p, p), (p, p)), geometry.out_size[1])


def conv_dx(g, w, geometry):
  """A convolution of the spread output gradient with the turned kernel."""
  size, k, s, p = geometry
  pads = [
    (k - 1 - p, n + p - 1 - s * (m - 1))
    for n, m in zip(size, geometry.out_size, strict=True)
  ]
  turned = w[::-1, ::-1].swapaxes(2, 3)
  return _correlate(g, turned, 1, pads, size[1], spread=s)


_CHANNELS = 32  # of a result, from which on XLA's kernels are at full speed


def _correlate(x, w, stride, pads, width, spread=1):
  """The correlation, with results of fewer channels as channels of a neighbour.

  Neighbours in a row see one window, and a kernel has the taps of each where they
  belong; the zeros between them cost less than lanes that are empty.
  """
  c, o = w.shape[2:]
  fits = lambda group: group * o <= _CHANNELS and width % group == 0
  group = 1
  while spread == 1 and fits(2 * group):
    group *= 2
  if group > 1:
    fill = [(0, 0)] * 3 + [(0, -c % 4)]  # Windows are copied by four channels.
    x, w = jnp.pad(x, fill), jnp.pad(w, [*fill[:2], fill[3], fill[2]])
    ends = [(i * stride, (group - 1 - i) * stride) for i in range(group)]
    taps = [jnp.pad(w, [(0, 0), end, (0, 0), (0, 0)]) for end in ends]
    w = jnp.concatenate(taps, 3)
  y = lax.conv_general_dilated(
    x,
    w,
    (stride, stride * group),
    pads,
    lhs_dilation=(spread, spread),
    dimension_numbers=_LAYOUT,
  )
  return y.reshape(*y.shape[:2], width, o)


_CHUNK_BYTES = 1 << 20  # shifted copies of one chunk: they fit the cache


def conv_dw(x, g, geometry):
  """Sums matrix products over chunks of the batch that fit the cache.

  Each device sums over its own part of the batch. A loop over the whole batch
  would make every device fetch the parts of the others.
  """
  return mesh.sum_shares(partial(_sum_products, geometry=geometry), x, g)


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
  """Kernel gradient as a product, or as one for each row of the kernel.

  Channels come first in the left factor, pixels first in the right one: the
  orientation for which XLA has its fastest kernel. The left factor stacks the k
  column shifts of x. If the stride is 1, the row shifts can be taken of g, and
  stand side by side in the right factor.
  """
  (_, k, s, p), (c, o) = geometry, (x.shape[3], g.shape[3])
  x = x.transpose(3, 0, 1, 2)
  if s == 1:
    rows = _shifts(g, 1, x.shape[2], k, 1, k - 1 - p)[::-1]
    right = jnp.concatenate(rows, 3).reshape(-1, k * o)
    dw = _stack_shifts(x, geometry) @ right
    return dw.reshape(k, c, k, o).transpose(2, 0, 1, 3)
  rows = _shifts(x, 2, g.shape[1], k, s, p)
  dw = [_stack_shifts(row, geometry) @ g.reshape(-1, o) for row in rows]
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
