"""The native maps against NumPy in float64, and as JAX sees them."""

import itertools
import os
from pathlib import Path
import re
import subprocess
import sys

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.cpu_conv import calls
from mnemonics_jax.errors import UserError
from mnemonics_jax.nn.conv import Geometry, conv2d

ROOT = Path(__file__).parents[2]

try:
  NATIVE = calls.choose().is_native
except UserError:  # The environment insists on what cannot be.
  NATIVE = False
needs_native = pytest.mark.skipif(not NATIVE, reason="kernels are not built")


def geometries(count):
  """Sizes of ResNets, then random ones: n, height, width, c, o, k, s, p."""
  yield from [
    (4, 32, 32, 3, 16, 3, 1, 1),
    (4, 32, 32, 16, 16, 3, 1, 1),
    (4, 16, 16, 16, 32, 3, 2, 1),
    (4, 16, 16, 32, 64, 1, 2, 0),
    (2, 8, 8, 64, 64, 3, 1, 1),
    (1, 24, 30, 3, 64, 7, 2, 3),
    (1, 7, 7, 96, 160, 3, 1, 1),
    (5, 7, 9, 32, 48, 3, 1, 1),
    (3, 10, 9, 48, 16, 3, 1, 0),
    (2, 33, 6, 16, 32, 3, 1, 3),
    (1, 5, 6, 144, 208, 3, 1, 1),
  ]
  rng = np.random.default_rng(0)
  low, high = (1, 1, 1, 1, 1, 1, 1, 0), (9, 14, 20, 40, 40, 8, 5, 5)
  for _ in range(count - 11):
    n, h, w, c, o, k, s, p = map(int, rng.integers(low, high))
    k = min(k, h + 2 * p, w + 2 * p)
    yield n, h, w, c, o, k, s, p


def by_numpy(x, w, g, stride, padding):
  """The three maps in float64, one product for each tap of the kernel."""
  x, w, g = (a.astype(np.float64) for a in (x, w, g))
  p, (height, width), (rows, columns) = padding, x.shape[1:3], g.shape[1:3]
  x = np.pad(x, [(0, 0), (p, p), (p, p), (0, 0)])
  y, dx, dw = np.zeros_like(g), np.zeros_like(x), np.zeros_like(w)
  for i, j in np.ndindex(*w.shape[:2]):
    reach = lambda at, n: slice(at, at + (n - 1) * stride + 1, stride)
    seen = slice(None), reach(i, rows), reach(j, columns)
    y += x[seen] @ w[i, j]
    dx[seen] += g @ w[i, j].T
    dw[i, j] = np.tensordot(x[seen], g, ((0, 1, 2), (0, 1, 2)))
  inside = slice(p, p + height), slice(p, p + width)
  return {"conv2d": y, "conv2d_dx": dx[:, *inside], "conv2d_dw": dw}


def relative_error(actual, expected):
  assert actual.shape == expected.shape
  # Pixels that no output sees have gradients of zero.
  return np.abs(actual - expected).max() / (np.abs(expected).max() or 1.0)


@needs_native
def test_random_geometries():
  rng, operands, shapes, expected = np.random.default_rng(1), [], [], []
  for n, h, w, c, o, k, s, p in geometries(120):
    shape = Geometry((h, w), k, s, p)
    sizes = (n, h, w, c), (k, k, c, o), (n, *shape.out_size, o)
    x, kernel, g = (rng.normal(size=z).astype(np.float32) for z in sizes)
    shapes.append(shape)
    operands.append(
      {"conv2d": (x, kernel), "conv2d_dx": (g, kernel), "conv2d_dw": (x, g)}
    )
    expected.append(by_numpy(x, kernel, g, s, p))

  @jax.jit  # One program for all: compiling takes longer than computing.
  def evaluate(operands):
    return [
      {name: calls.form(name)(*pair, shape) for name, pair in maps.items()}
      for maps, shape in zip(operands, shapes, strict=True)
    ]

  assert len(expected) >= 100
  pairs = zip(shapes, evaluate(operands), expected, strict=True)
  for shape, actual, right in pairs:
    for name, value in right.items():
      assert relative_error(actual[name], value) < 1e-5, (name, shape)


def _program(dtype, **options):
  x, w = jnp.ones((2, 5, 5, 3), dtype), jnp.ones((3, 3, 3, 4), dtype)
  gradient = jax.grad(lambda x, w: conv2d(x, w).sum() ** 2, (0, 1))
  return jax.jit(gradient).trace(x, w).lower(**options).as_text()


@needs_native
def test_float32_on_a_cpu_is_native():
  text = _program(jnp.float32)
  for name in calls.MAPS:
    assert len(re.findall(rf"{calls.choose().target(name)}\b", text)) == 1
  assert "stablehlo.convolution" not in text


def test_other_types_and_platforms_are_left_to_xla():
  assert "mnemonics-" not in _program(jnp.bfloat16)
  assert "mnemonics-" not in _program(jnp.float32, lowering_platforms=("cuda",))
  with jax.enable_x64(True):
    assert "mnemonics-" not in _program(jnp.float64)


def _everything(conv):
  """First and second derivatives, in a loop, of a batch of kernels."""

  def loss(w, x):
    def layer(x, _):
      return jnp.tanh(conv(x, w)), None

    return jnp.mean(lax.scan(layer, x, length=3)[0] ** 2)

  def evaluate(x, kernels):
    gradient = jax.vmap(jax.grad(loss), (0, None))(kernels, x)
    w, tangent = kernels[0], kernels[1]
    _, product = jax.jvp(lambda w: jax.grad(loss)(w, x), (w,), (tangent,))

    def meta(x):
      return jnp.sum(jax.grad(loss)(w, x) * tangent)

    return gradient, product, jax.grad(meta)(x)

  return jax.jit(evaluate)


@needs_native
def test_derivatives_in_loops_and_batches():
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(4, 8, 6, 5)), jnp.float32)
  kernels = jnp.asarray(rng.normal(size=(2, 3, 3, 5, 5)) / 5, jnp.float32)
  with jax.enable_x64(True):
    wide = (jnp.asarray(a, jnp.float64) for a in (x, kernels))
    plain = lambda x, w: lax.conv_general_dilated(
      x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    expected = jax.device_get(_everything(plain)(*wide))
  actual = _everything(conv2d)(x, kernels)
  for a, b in zip(actual, expected, strict=True):
    assert relative_error(a, b) < 1e-5


@needs_native
def test_bits_repeat():
  rng = np.random.default_rng(0)
  x = jnp.asarray(rng.normal(size=(40, 16, 16, 16)), jnp.float32)
  w = jnp.asarray(rng.normal(size=(3, 3, 16, 16)), jnp.float32)
  step = jax.jit(jax.grad(lambda x, w: (conv2d(x, w) ** 2).sum(), (0, 1)))
  first = jax.device_get(step(x, w))
  for _ in range(20):
    for a, b in zip(first, jax.device_get(step(x, w)), strict=True):
      np.testing.assert_array_equal(a, b)


DEVICES = """
import jax, jax.numpy as jnp, numpy as np, re
from mnemonics_jax.nn.conv import conv2d
from mnemonics_jax.cpu_conv import choose
from mnemonics_jax.parallel import mesh

x = np.random.default_rng(0).normal(size=(8, 6, 6, 3)).astype(np.float32)
w = np.random.default_rng(1).normal(size=(3, 3, 3, 4)).astype(np.float32)

def step(x, w):
  return jax.grad(lambda x, w: jnp.sum(jnp.sin(conv2d(x, w))), (0, 1))(x, w)

alone = jax.jit(step)(x, w)
with mesh.use(4):
  arrays = mesh.put_sharded(x, 8), mesh.put_replicated(w)
  program = jax.jit(lambda x, w: step(mesh.shard(x), w)).lower(*arrays).compile()
  text, shared = program.as_text(), program(*arrays)
assert "all-gather" not in text and "all-to-all" not in text, text
assert len(re.findall(r"all-reduce(?:-start)?\\(", text)) == 1, text
if choose().is_native:
  # Two of the eight images.
  assert re.search(r"f32\\[2,6,6,4\\].* custom-call\\(.*-conv2d\\W", text), text
assert shared[0].sharding.spec[0] == "data"
for a, b in zip(shared, alone):
  np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)

# Rows that make no equal shares.
with mesh.use(3):
  uneven = jax.jit(step)(x, w)
for a, b in zip(uneven, alone):
  np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
"""


def in_new_process(code, **environment):
  return subprocess.run(
    [sys.executable, "-W", "error", "-c", code],
    env=os.environ | {"PYTHONPATH": str(ROOT)} | environment,
    capture_output=True,
    text=True,
  )


def test_each_device_computes_its_share():
  flags = "--xla_force_host_platform_device_count=4"
  done = in_new_process(DEVICES, XLA_FLAGS=flags)
  assert done.returncode == 0, done.stderr


DIGEST = """
import hashlib, jax, numpy as np
from mnemonics_jax.nn.conv import conv2d
bits = b""
for channels, stride in ((20, 2), (32, 1)):  # Tap by tap, and by Winograd's scheme.
  shapes = (20, 12, 12, channels), (3, 3, channels, 2 * channels)
  x, w = (np.random.default_rng(i).normal(size=shapes[i]).astype(np.float32) for i in (0, 1))
  step = jax.grad(lambda x, w: (conv2d(x, w, stride=stride) ** 2).sum(), (0, 1))
  bits += b"".join(np.asarray(a).tobytes() for a in jax.jit(step)(x, w))
print(hashlib.sha256(bits).hexdigest())
"""


@needs_native
@pytest.mark.skipif(
  not hasattr(os, "sched_setaffinity"), reason="threads cannot be limited here"
)
def test_bits_do_not_depend_on_the_number_of_threads():
  cores = sorted(os.sched_getaffinity(0))
  only = "import os; os.sched_setaffinity(0, {%s})\n"
  ways = {str(cores[0]), ",".join(map(str, cores))}
  digests = [in_new_process(only % way + DIGEST) for way in sorted(ways)]
  assert all(done.returncode == 0 for done in digests), digests[0].stderr
  for one, other in itertools.pairwise(digests):
    assert one.stdout == other.stdout
