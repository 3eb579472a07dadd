"""Questions before a long run, answered for problems that are known."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.conv_model import (
  ALL,
  change,
  linear_problem,
)

from mnemonics_jax import bilevel
from mnemonics_jax.nn.augment import CropFlip


def test_check_hypergradient_agrees_in_float32_and_finds_a_wrong_gradient():
  apply_fn, args = linear_problem(6)
  check = functools.partial(
    bilevel.check_hypergradient, jax.random.key(0), *args, apply_fn=apply_fn
  )
  config = change(ALL, inner_lr=0.01)
  result = check(config=config)
  assert result.method == "forward" and result.error < 1e-3
  assert result.right and result.verdict == "right"
  result = check(config=config, method="finite")
  assert result.method == "finite" and result.error < 1e-3
  result = check(config=change(config, truncate=1), method="finite")
  assert result.error > 0.01 and result.verdict == "truncated"
  assert not result.right and "`truncate`" in result.explanation


def test_check_hypergradient_finds_a_wrong_derivative():
  @jax.custom_vjp
  def double(x):
    return 2 * x

  double.defvjp(lambda x: (2 * x, None), lambda _, g: (1.9 * g,))
  apply_fn, args = linear_problem(6)
  result = bilevel.check_hypergradient(
    jax.random.key(0),
    *args,
    apply_fn=lambda v, x: double(apply_fn(v, x)),
    config=change(ALL, inner_lr=0.01),
  )
  assert result.verdict == "wrong" and not result.right
  assert "custom derivatives" in result.explanation


@pytest.mark.parametrize(
  "activation, method, verdict",
  [
    (jax.nn.relu, "auto", "kinks"),
    pytest.param(jax.nn.relu, "finite", "unsure", marks=pytest.mark.slow),
    (jnp.tanh, "auto", "right"),
  ],
)
def test_check_hypergradient_knows_kinks(activation, method, verdict):
  """A black background and a bias of 0 put activations exactly on them."""
  rng = np.random.default_rng(0)
  images = rng.random((6, 4, 4, 1)).astype(np.float32)
  images[:, :2] = 0
  labels = np.arange(6) % 2
  weights = [rng.normal(size=size) for size in ((3, 3, 1, 4), (64, 2))]
  params = {
    "w": jnp.array(weights[0], jnp.float32),
    "b": jnp.zeros(4),
    "head": jnp.array(weights[1], jnp.float32),
  }

  def apply_fn(variables, x):
    p = variables["params"]
    x = jax.lax.conv_general_dilated(
      x.astype(p["w"].dtype), p["w"], (1, 1), "SAME",
      dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )  # fmt: skip
    return activation(x + p["b"]).reshape(len(x), -1) @ p["head"]

  result = bilevel.check_hypergradient(
    jax.random.key(0),
    bilevel.Exemplars(jnp.asarray(images), labels),
    {"params": params},
    (images, labels),
    apply_fn=apply_fn,
    config=bilevel.BilevelConfig(inner_steps=1),
    method=method,
  )
  assert result.verdict == verdict, result
  assert result.right == (verdict != "unsure")
  assert ("kinks" in result.explanation) == (verdict != "right")


def test_check_hypergradient_serves_random_configs():
  apply_fn, args = linear_problem(6)
  config = change(
    ALL, inner_lr=0.01, inner_batch_size=2, augment=CropFlip(pad=1)
  )
  result = bilevel.check_hypergradient(
    jax.random.key(0), *args, apply_fn=apply_fn, config=config
  )
  assert result.error < 1e-3


def test_check_hypergradient_falls_back_where_forward_mode_fails():
  @jax.custom_vjp
  def double(x):
    return 2 * x

  double.defvjp(lambda x: (double(x), None), lambda _, g: (double(g),))
  apply_fn, args = linear_problem(6)
  check = functools.partial(
    bilevel.check_hypergradient,
    jax.random.key(0),
    *args,
    apply_fn=lambda v, x: double(apply_fn(v, x)),
    config=change(ALL, inner_lr=0.01),
  )
  result = check()
  assert result.method == "finite" and result.error < 1e-3
  with pytest.raises(TypeError, match='method="finite"'):
    check(method="forward")


def test_estimate_memory_counts_what_each_remat_stores():
  apply_fn, args = linear_problem(2)
  shapes = jax.eval_shape(lambda *x: x, *args)
  config = change(ALL, inner_steps=100)
  result = bilevel.estimate_memory(
    *shapes, apply_fn=apply_fn, config=config, limit_bytes=200_000
  )
  # The weights take 3072 bytes: 100 of them stored per step, about 10 + 10
  # nested.
  weights = 3072
  assert result.step > 100 * weights
  assert 20 * weights < result.nested < 40 * weights
  assert result.suggestion == "nested"


def test_estimate_memory_prefers_the_fastest_that_fits():
  apply_fn, args = linear_problem(60)
  wide = lambda v, x: apply_fn(v, jnp.tanh(v["params"][0, 0] + x))
  config = change(ALL, inner_steps=8)
  result = bilevel.estimate_memory(
    *args, apply_fn=wide, config=config, limit_bytes=1_000_000
  )
  # Activations dwarf the weights: 61,440 bytes per step against 3072.
  assert result.none - result.step > 7 * 61_440
  assert result.suggestion == "step"


def test_step_bytes_count_what_a_step_leaves_behind():
  """For each exemplar its image, at least, and nothing for those not there."""
  apply_fn, (exemplars, variables, _) = linear_problem(40)
  count = lambda n: bilevel.step_bytes(
    jax.tree.map(lambda x: x[:n], exemplars), variables, apply_fn=apply_fn
  )
  one, two, four = count(10), count(20), count(40)
  assert four - two == 2 * (two - one)  # Linear in the exemplars.
  image = 4 * 16 * 16
  assert image <= (two - one) / 10 <= 4 * image
  assert bilevel.device_bytes() > 2**20
