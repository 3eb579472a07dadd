"""The base level, against the same loop in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from support.conv_model import (
  ALL,
  HALF_MASK,
  HEAD,
  apply_fn,
  assert_trees_close,
  change,
  draw,
  jitted,
  linear_problem,
  plain_loss,
  quick_jit,
  unrolled,
)

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import Exemplars


def reference_unroll(variables, loss, lr, steps, momentum=0.0):
  """The base level as a Python loop."""
  params = variables["params"]
  velocity = jax.tree.map(jnp.zeros_like, params)
  grad = jax.grad(lambda p, t: loss({**variables, "params": p}, t))
  for t in range(steps):
    grads = quick_jit(grad)(params, t)
    velocity = jax.tree.map(lambda v, g: momentum * v + g, velocity, grads)
    params = jax.tree.map(lambda p, v: p - lr * v, params, velocity)
  return {**variables, "params": params}


def test_unroll_equals_a_loop_over_the_unmasked_exemplars(x64):
  exemplars, variables, _ = draw()
  keep = jnp.array([True, False, True, True, True, False])
  images, labels = exemplars.images[keep], exemplars.labels[keep]
  expected = reference_unroll(
    variables,
    lambda v, t: plain_loss(v, images, labels),
    lr=0.2,
    steps=4,
    momentum=0.9,
  )
  config = change(ALL, inner_steps=4, inner_optimizer=optax.sgd(0.2, 0.9))
  actual = unrolled(exemplars._replace(mask=keep), variables, config)
  assert_trees_close(actual, expected)


def test_unroll_mixes_inner_data_and_calls_the_inner_loss(x64):
  exemplars, variables, batch = draw()
  inner_data = batch[0].reshape(2, 4, 4, 4, 1), batch[1].reshape(2, 4)

  def mixed(v, t):
    images = jnp.concatenate([exemplars.images, inner_data[0][t]])
    labels = jnp.concatenate([exemplars.labels, inner_data[1][t]])
    return plain_loss(v, images, labels)

  config = change(ALL, inner_steps=2)
  expected = reference_unroll(variables, mixed, lr=0.3, steps=2)
  actual = unrolled(exemplars, variables, config, inner_data=inner_data)
  assert_trees_close(actual, expected)

  squared = lambda v, data: jnp.mean(apply_fn(v, data.images) ** 2)
  actual = unrolled(exemplars, variables, change(config, inner_loss=squared))
  expected = reference_unroll(
    variables, lambda v, t: squared(v, exemplars), lr=0.3, steps=2
  )
  assert_trees_close(actual, expected)


def test_masked_rows_of_inner_data_do_not_count():
  apply_fn, (exemplars, variables, batch) = linear_problem(6)
  inner = [x.reshape(3, 2, *x.shape[1:]) for x in batch]
  train = lambda data: bilevel.unroll(
    exemplars, variables, apply_fn=apply_fn, config=ALL, inner_data=data
  )["params"]
  hidden = Exemplars(*inner, jnp.zeros((3, 2), bool))
  np.testing.assert_allclose(train(hidden), train(None), atol=1e-6)
  assert np.abs(train(Exemplars(*inner)) - train(None)).max() > 1e-3


def test_mini_batches_visit_every_real_exemplar_equally_often(x64):
  exemplars = draw()[0]._replace(mask=jnp.asarray(HALF_MASK))
  seen = {"params": jnp.zeros(6)}
  # The loss is linear in a counter whose gradient names the rows of the batch.
  rows = jnp.arange(6.0).reshape(6, 1, 1, 1) * jnp.ones((1, 4, 4, 1)) / 8

  def count(v, data):
    picked = jnp.round(data.images[:, :1, 0, 0] * 8) == jnp.arange(6)
    return (picked * data.mask[:, None] @ v["params"]).sum()

  config = change(ALL, inner_loss=count, inner_batch_size=2, inner_lr=1.0)
  config = change(config, inner_steps=4)
  end = unrolled(
    exemplars._replace(images=rows),
    seen,
    config,
    apply_fn=lambda v, x: x.reshape(len(x), -1)[:, :3],
    key=jax.random.key(3),
  )
  np.testing.assert_array_equal(end["params"], [-2, -2, -2, -2, 0, 0])


def test_batch_statistics_do_not_leak_and_padding_does_not_enter_them(x64):
  exemplars, variables, batch = draw()
  config = change(ALL, batch_norm="batch")
  end = unrolled(exemplars, variables, config)
  for name in ("batch_stats", "transfer"):
    jax.tree.map(np.testing.assert_array_equal, end[name], variables[name])
  masked = exemplars._replace(mask=jnp.asarray(HALF_MASK))
  other = masked._replace(images=masked.images.at[4:].set(0.9))
  run = jitted(variables, batch, config)
  for a, b in zip(run(masked), run(other), strict=True):
    np.testing.assert_array_equal(a, b)


def test_imprint_writes_unit_class_means_and_keeps_other_rows():
  head = {"weight": jnp.full((3, 2), 7.0), "sigma": jnp.float32(2)}
  features = jnp.array([[3.0, 4.0], [5.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
  labels = jnp.array([0, 0, 1, 2])
  mask = jnp.array([True, True, True, False])
  rows = bilevel.imprint(head, features, labels, mask)["weight"]
  # Mean of (0.6, 0.8) and (1, 0) is (0.8, 0.4): direction (2, 1) / √5.
  expected = [[2 / 5**0.5, 1 / 5**0.5], [0, 1], [7, 7]]
  np.testing.assert_allclose(rows, expected, rtol=1e-6)


def test_a_callers_imprint_replaces_the_built_in_one(x64):
  exemplars, variables, batch = draw()
  keep = lambda head, features, labels, mask: head
  own = jitted(variables, batch, change(HEAD, imprint_fn=keep))(exemplars)
  model = jitted(variables, batch, change(HEAD, head_start="model"))(exemplars)
  assert_trees_close(own, model)
