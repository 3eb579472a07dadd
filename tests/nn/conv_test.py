"""conv2d and its derivatives against XLA's own convolution and brute force."""

from functools import partial
import inspect
import itertools
import os
from pathlib import Path
import subprocess
import sys

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.nn.conv import Geometry, conv2d

# kernel, stride, padding, height, width
RESNET = [
  (3, 1, None, 6, 5),
  (3, 2, None, 6, 8),
  (3, 2, None, 7, 6),
  (1, 1, None, 4, 5),
  (1, 2, None, 6, 5),
  (7, 2, None, 10, 11),
]
UNUSUAL = [
  (2, 1, 0, 5, 4),  # even kernel
  (5, 3, 1, 11, 9),
  (3, 1, 3, 4, 5),  # padding wider than the kernel reaches
  (3, 2, 0, 8, 9),  # last rows never seen
]


def reference(x, w, *, stride=1, padding=None):
  p = len(w) // 2 if padding is None else padding
  layout = ("NHWC", "HWIO", "NHWC")
  return lax.conv_general_dilated(
    x, w, (stride, stride), [(p, p)] * 2, dimension_numbers=layout
  )


def arrays(kernel, height, width, batch=3, dtype=np.float64, seed=0):
  rng = np.random.default_rng(seed)
  x = rng.normal(size=(batch, height, width, 2))
  w = rng.normal(size=(kernel, kernel, 2, 4)) / kernel
  return jnp.asarray(x, dtype), jnp.asarray(w, dtype)


def derivatives(conv, stride=1, padding=None):
  """Value, gradients, gradients of a function of the gradients, and tangents."""

  def loss(x, w):
    return jnp.sum(jnp.sin(conv(x, w, stride=stride, padding=padding)))

  def meta_loss(x, w):
    dx, dw = jax.grad(loss, (0, 1))(x, w)
    return jnp.sum(jnp.cos(dx)) + jnp.sum(dw**2)

  def evaluate(x, w):
    tangents = jnp.cos(x), jnp.cos(w)
    return {
      "value": conv(x, w, stride=stride, padding=padding),
      "reverse": jax.grad(loss, (0, 1))(x, w),
      "reverse over reverse": jax.grad(meta_loss, (0, 1))(x, w),
      "forward over reverse": jax.jvp(jax.grad(loss, 1), (x, w), tangents),
    }

  # Only what is tested needs the optimised compilation, which takes longer.
  level = 0 if conv is reference else 3
  options = {"xla_backend_optimization_level": level}
  return jax.jit(evaluate, compiler_options=options)


def assert_close(actual, expected, tolerance):
  """Each array's largest error relative to its largest entry."""
  paths, _ = jax.tree.flatten_with_path(expected)
  for (path, b), a in zip(paths, jax.tree.leaves(actual), strict=True):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert a.shape == b.shape
    error = np.abs(a - b).max() / np.abs(b).max()
    assert error < tolerance, f"{jax.tree_util.keystr(path)}: {error:.1e}"


@pytest.fixture
def x64():
  with jax.enable_x64(True):
    yield


def test_value_by_brute_force(x64):
  x, w = map(np.asarray, arrays(3, 5, 6, batch=2))
  padded = np.pad(x, [(0, 0), (1, 1), (1, 1), (0, 0)])
  expected = np.zeros((2, 3, 3, 4))
  for n, i, j, o in np.ndindex(*expected.shape):
    window = padded[n, 2 * i : 2 * i + 3, 2 * j : 2 * j + 3]
    expected[n, i, j, o] = np.sum(window * w[..., o])
  assert_close(
    conv2d(jnp.asarray(x), jnp.asarray(w), stride=2), expected, 1e-13
  )


@pytest.mark.parametrize("case", RESNET + UNUSUAL)
def test_derivatives_float64(x64, case):
  kernel, stride, padding, height, width = case
  x, w = arrays(kernel, height, width)
  expected = derivatives(reference, stride, padding)(x, w)
  assert_close(derivatives(conv2d, stride, padding)(x, w), expected, 1e-12)


@pytest.mark.parametrize("case", RESNET[::2] + RESNET[-1:])
def test_derivatives_float32(case):
  kernel, stride, padding, height, width = case
  x, w = arrays(kernel, height, width, dtype=np.float32)
  expected = derivatives(reference, stride, padding)(x, w)
  actual = derivatives(conv2d, stride, padding)(x, w)
  assert all(a.dtype == np.float32 for a in jax.tree.leaves(actual))
  assert_close(actual, expected, 1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_batch_larger_than_a_chunk(x64, stride):
  # At stride 1 an image has 144 kB of shifted copies, so a chunk has three.
  x, w = arrays(3, 32, 32, batch=12)
  n = 32 // stride
  g = jnp.sin(jnp.arange(12 * n * n * 4.0)).reshape(12, n, n, 4)

  def dw(conv):
    return jax.vjp(lambda w: conv(x, w, stride=stride), w)[1](g)[0]

  assert_close(dw(conv2d), dw(reference), 1e-12)


def test_bfloat16():
  x, w = arrays(3, 6, 6, dtype=jnp.bfloat16)
  actual = derivatives(conv2d)(x, w)
  assert all(a.dtype == jnp.bfloat16 for a in jax.tree.leaves(actual))
  assert_close(actual["reverse"], derivatives(reference)(x, w)["reverse"], 3e-2)


def test_third_derivative_in_one_direction(x64):
  # With x and w on a line, sum(conv^2) is a polynomial of degree 4 in t.
  x, w = arrays(3, 5, 5)
  u, v = jnp.cos(x), jnp.sin(3 * w)

  def f(t):
    return jnp.sum(conv2d(x + t * u, w + t * v, stride=2) ** 2)

  t = np.linspace(-1, 1, 5)
  quartic = np.polynomial.Polynomial.fit(t, [float(f(a)) for a in t], 4)
  expected = quartic.deriv(3)(0.3)
  reverse = jax.grad(jax.grad(jax.grad(f)))(0.3)
  forward = jax.jacfwd(jax.jacfwd(jax.jacfwd(f)))(0.3)
  assert_close([reverse, forward], [expected, expected], 1e-10)


def test_all_orders_stay_within_the_three_maps():
  x, w = arrays(3, 6, 6, dtype=np.float32)

  def loss(x, w):
    return jnp.sum(conv2d(x, w, stride=2) ** 3)

  def meta_loss(x, w):
    return sum(jnp.sum(d**2) for d in jax.grad(loss, (0, 1))(x, w))

  text = str(jax.make_jaxpr(jax.grad(meta_loss, (0, 1)))(x, w))
  for name in ("conv2d[", "conv2d_dx[", "conv2d_dw["):
    assert name in text
  assert "conv_general_dilated" not in text


@pytest.mark.parametrize("axes", [(1, None), (None, 4), (3, 0)])
@pytest.mark.parametrize("name", ["conv", "dx", "dw"])
def test_vmap(x64, name, axes):
  x, w = arrays(3, 5, 6)
  g = jnp.cos(reference(x, w, stride=2))

  def bilinear(conv):
    def dx(g, w):
      return jax.vjp(lambda x: conv(x, w, stride=2), x)[1](g)[0]

    def dw(x, g):
      return jax.vjp(lambda w: conv(x, w, stride=2), w)[1](g)[0]

    return {"conv": partial(conv, stride=2), "dx": dx, "dw": dw}[name]

  def mapped(a, axis):
    return a if axis is None else jnp.stack([a, jnp.sin(a)], axis)

  operands = {"conv": (x, w), "dx": (g, w), "dw": (x, g)}[name]
  operands = [mapped(a, axis) for a, axis in zip(operands, axes, strict=True)]
  actual = jax.vmap(bilinear(conv2d), axes)(*operands)
  pairs = [
    [a if axis is None else jnp.take(a, i, axis) for i in range(2)]
    for a, axis in zip(operands, axes, strict=True)
  ]
  expected = [bilinear(reference)(a, b) for a, b in zip(*pairs, strict=True)]
  assert_close(actual, jnp.stack(expected), 1e-12)


@pytest.mark.parametrize("remat", [False, True])
def test_gradient_through_an_unrolled_loop(x64, remat):
  x, w = arrays(3, 5, 6)

  def after_training(conv):
    def loss(w, x):
      return jnp.mean(jnp.tanh(conv(x, w)) ** 2)

    def meta_loss(x):
      def step(w, _):
        return w - 0.1 * jax.grad(loss)(w, x), None

      body = jax.checkpoint(step) if remat else step
      return loss(lax.scan(body, w, length=3)[0], x[::-1] ** 2)

    return jax.jit(jax.grad(meta_loss))(x)

  assert_close(after_training(conv2d), after_training(reference), 1e-12)


def test_eager_equals_jit():
  x, w = arrays(3, 5, 6, dtype=np.float32)
  gradient = jax.grad(lambda x, w: jnp.sum(jnp.sin(conv2d(x, w))), (0, 1))
  assert_close(gradient(x, w), jax.jit(gradient)(x, w), 1e-6)


@pytest.mark.parametrize("shape", [(0, 5, 6, 16), (1, 0, 4, 16)])
def test_nothing_to_compute(shape):
  """No images, or images without rows, of which only the border is seen."""
  x, w = jnp.ones(shape), jnp.ones((3, 3, 16, 16))
  y, back = jax.vjp(lambda x, w: conv2d(x, w, padding=2), x, w)
  assert y.shape == (shape[0], shape[1] + 2, shape[2] + 2, 16) and not y.any()
  dx, dw = back(jnp.ones_like(y))
  assert dx.shape == x.shape and not dw.any()


@pytest.mark.parametrize("platform", ["tpu", "cuda"])
def test_accelerators_get_plain_convolutions(platform):
  x, w = arrays(3, 6, 6, dtype=np.float32)
  evaluate = derivatives(conv2d, stride=2)
  text = evaluate.trace(x, w).lower(lowering_platforms=(platform,)).as_text()
  assert "stablehlo.convolution" in text
  for operation in ("dot_general", "while", "custom_call", "concatenate"):
    assert f"stablehlo.{operation}" not in text


@pytest.mark.parametrize(
  ("x", "w", "message"),
  [
    ((4, 4, 3), (3, 3, 3, 8), "add a batch axis"),
    ((1, 4, 4, 3), (3, 3, 4, 8), r"\[k, k, 3, o\]"),
    ((1, 4, 4, 3), (3, 1, 3, 8), r"\[k, k, 3, o\]"),
  ],
)
def test_wrong_shapes(x, w, message):
  # Users see these errors, for they run without a checker of annotations.
  unchecked = inspect.unwrap(conv2d)
  with pytest.raises(ValueError, match=message):
    unchecked(jnp.zeros(x), jnp.zeros(w))


def test_kernel_larger_than_the_image():
  with pytest.raises(ValueError, match="does not fit"):
    conv2d(jnp.zeros((1, 2, 2, 1)), jnp.zeros((3, 3, 1, 1)), padding=0)


def test_mixed_types():
  with pytest.raises(TypeError, match="cast one"):
    conv2d(jnp.zeros((1, 4, 4, 1)), jnp.zeros((3, 3, 1, 1), jnp.bfloat16))


@pytest.mark.parametrize(
  "kernel, stride, padding",
  [(3, 1, 1), (3, 2, 1), (1, 2, 0), (7, 2, 3), (5, 3, 1)],
)
def test_outputs_are_counted_one_by_one(kernel, stride, padding):
  for size in itertools.product((7, 8, 9), (12, 13)):
    geometry = Geometry(size, kernel, stride, padding)
    padded = (np.pad(np.zeros(n), padding) for n in size)
    starts = (range(0, len(n) - kernel + 1, stride) for n in padded)
    assert geometry.out_size == tuple(map(len, starts))


def test_equal_ones_find_the_same_program():
  assert hash(Geometry((8, 8), 3, 1, 1)) == hash(Geometry((8, 8), 3, 1, 1))


TWO_DEVICES = """
import jax
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
import numpy as np
from tests.nn.conv_test import arrays, assert_close, derivatives, reference
from mnemonics_jax.nn.conv import conv2d

x, w = arrays(3, 6, 5, batch=4)
expected = derivatives(reference)(x, w)
for axis_type in (AxisType.Auto, AxisType.Explicit):
  mesh = jax.make_mesh((2,), ("data",), axis_types=(axis_type,))
  with jax.set_mesh(mesh):
    x2 = jax.device_put(x, NamedSharding(mesh, P("data")))
    w2 = jax.device_put(w, NamedSharding(mesh, P()))
    actual = derivatives(conv2d)(x2, w2)
  assert actual["value"].sharding.spec[0] == "data", actual["value"].sharding
  assert_close(actual, expected, 1e-12)

# A kernel that all devices share gets the sum of their gradients.
gradient = jax.grad(lambda w, x: jax.numpy.sum(jax.numpy.sin(conv2d(x, w))))
sharded = jax.shard_map(
  gradient, mesh=mesh, in_specs=(P(), P("data")), out_specs=P()
)
assert_close(jax.jit(sharded)(w2, x2), expected["reverse"][1], 1e-12)
"""


def test_two_devices():
  environment = os.environ | {
    "XLA_FLAGS": "--xla_force_host_platform_device_count=2",
    "JAX_ENABLE_X64": "1",
    "JAX_PLATFORMS": "cpu",
  }
  command = [sys.executable, "-W", "error", "-c", TWO_DEVICES]
  root = Path(__file__).parents[2]
  run = subprocess.run(
    command, env=environment, cwd=root, capture_output=True, text=True
  )
  assert run.returncode == 0, run.stderr
