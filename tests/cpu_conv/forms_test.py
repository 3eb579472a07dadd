"""The forms of convolutions that are left to XLA on a CPU."""

import re

import jax
from jax import lax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax.cpu_conv import calls
from mnemonics_jax.nn.conv import conv2d


def arrays(kernel, size, dtype):
  rng = np.random.default_rng(0)
  x = rng.normal(size=(3, size, size, 2))
  w = rng.normal(size=(kernel, kernel, 2, 4))
  return jnp.asarray(x, dtype), jnp.asarray(w, dtype)


@pytest.fixture
def xla_form(monkeypatch):
  """Convolutions that are lowered here are left to XLA."""
  monkeypatch.setattr(calls, "choose", lambda: calls.Choice("xla"))


@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_cpu_gets_products_for_the_kernel_gradient(xla_form, dtype):
  def program(argument):
    gradient = jax.grad(lambda *a: jnp.sum(conv2d(*a) ** 2), argument)
    return jax.jit(gradient).lower(*arrays(3, 6, dtype)).as_text()

  assert program(0).count("stablehlo.convolution") == 2  # value, gradient
  assert "dot_general" not in program(0)
  assert program(1).count("stablehlo.convolution") == 1  # value
  assert "dot_general" in program(1)


@pytest.mark.parametrize(
  "width, channels, group",
  [(12, 16, 2), (12, 8, 4), (12, 3, 4), (7, 16, 1), (12, 32, 1), (10, 5, 2)],
)
def test_neighbours_of_few_channels_are_computed_together(
  xla_form, width, channels, group
):
  x, w = jnp.ones((2, 3, width, 4)), jnp.ones((3, 3, 4, channels))
  maps = {
    "value": jax.jit(conv2d).lower(x, w),
    "gradient": jax.jit(jax.grad(lambda x: conv2d(x, w.swapaxes(2, 3)).sum()))
    .lower(jnp.ones((2, 3, width, channels))),
  }  # fmt: skip
  result = f"-> tensor<2x3x{width // group}x{group * channels}xf32>"
  for name, program in maps.items():
    lines = program.as_text().splitlines()
    assert any("convolution" in i and result in i for i in lines), name


@pytest.mark.parametrize("case", [(1, 2), (3, 1), (3, 2), (5, 2)])
def test_layout_with_fast_kernels_in_a_loop_on_a_cpu(xla_form, case):
  kernel, stride = case

  def loss(arrays):
    return jnp.sum(jnp.sin(conv2d(*arrays, stride=stride)))

  def step(_, arrays):
    return jax.tree.map(lambda a, d: a - d, arrays, jax.grad(loss)(arrays))

  loop = jax.jit(lambda arrays, n: lax.fori_loop(0, n, step, arrays))
  start = arrays(kernel, 12, np.float32)
  program = loop.lower(start, 3).compile().as_text()
  layouts = re.findall(r" convolution\(.*dim_labels=([^, ]+)", program)
  assert len(layouts) >= 2
  assert set(layouts) == {"b01f_01io->b01f"}
