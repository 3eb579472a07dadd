"""The gradient through the base level, against finite differences and closed forms."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from support.conv_model import (
  ALL,
  HALF_MASK,
  HEAD,
  apply_fn,
  assert_trees_close,
  change,
  draw,
  features_fn,
  jitted,
  plain_loss,
  quick_jit,
  unrolled,
)

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import Exemplars, Features


def assert_matches_finite_differences(exemplars, loss_and_grad):
  """Random pixels and random directions, fourth-order central differences."""
  images = np.asarray(exemplars.images)
  loss = lambda e: float(loss_and_grad(exemplars._replace(images=e))[0])
  grads = np.asarray(loss_and_grad(exemplars)[1])
  assert grads.shape == images.shape
  rng = np.random.default_rng(1)
  directions = [rng.normal(size=images.shape) for _ in range(2)]
  for place in rng.integers(0, 4 * 16, 3):  # rows 0 to 3 are never masked
    pixel = np.zeros(images.size)
    pixel[place] = 1
    directions.append(pixel.reshape(images.shape))
  h = 3e-4
  for d in directions:
    near = loss(images + h * d) - loss(images - h * d)
    far = loss(images + 2 * h * d) - loss(images - 2 * h * d)
    expected = (8 * near - far) / (12 * h)
    assert abs(expected) > 1e-7, "a flat direction proves nothing"
    np.testing.assert_allclose(np.sum(grads * d), expected, rtol=1e-6)


MOMENTUM = optax.sgd(0.1, 0.9)
CASES = {
  "1 step": change(ALL, inner_steps=1),
  "3 steps, masked": ALL,
  "10 steps, momentum": change(ALL, inner_steps=10, inner_optimizer=MOMENTUM),
  "mini-batches, momentum, masked": change(
    ALL, inner_batch_size=3, inner_optimizer=MOMENTUM
  ),
  "adam": change(ALL, inner_optimizer=optax.adam(0.05, eps_root=0.01)),
  "remat step": change(ALL, remat="step"),
  "nested, masked": change(ALL, inner_steps=11, inner_lr=0.1, remat="nested"),
  "batch norm": change(ALL, batch_norm="batch"),
  "batch norm, mini-batches, masked": change(
    ALL, batch_norm="batch", inner_batch_size=3, remat="step"
  ),
  "transfer": change(ALL, scope="transfer", inner_lr=1.0),
  "head": HEAD,
  "head, masked": change(HEAD, inner_steps=10, inner_optimizer=MOMENTUM),
  "head, imprint alone": change(HEAD, inner_steps=0),
  "head, model": change(HEAD, head_start="model"),
  "head, batch norm, masked": change(HEAD, batch_norm="batch"),
  "head, nested, mini-batches": change(
    HEAD, inner_steps=21, remat="nested", inner_batch_size=2
  ),
  "head, general": change(ALL, scope="head", head_start="model"),
}


@pytest.mark.parametrize("case", CASES)
def test_hypergradient_equals_finite_differences(x64, case):
  exemplars, variables, batch = draw()
  if "masked" in case:
    exemplars = exemplars._replace(mask=jnp.asarray(HALF_MASK))
  run = jitted(variables, batch, CASES[case], key=jax.random.key(0))
  assert_matches_finite_differences(exemplars, run)


def test_inner_data_augmentation_and_active_classes(x64):
  exemplars, variables, batch = draw()
  _, _, (images, labels) = draw(seed=1)
  active = jnp.array([True, True, False])
  exemplars = exemplars._replace(mask=exemplars.labels < 2)
  batch = (*batch, batch[1] < 2)
  config = change(ALL, augment=lambda key, x: jnp.roll(x, 1, axis=2) ** 2)
  inner_data = images[:6].reshape(3, 2, 4, 4, 1), labels[:6].reshape(3, 2) % 2
  run = jitted(
    variables,
    batch,
    config,
    key=jax.random.key(0),
    active=active,
    inner_data=inner_data,
  )
  images = np.asarray(exemplars.images)
  direction = np.random.default_rng(1).normal(size=images.shape)
  loss = lambda t: run(exemplars._replace(images=images + t * direction))[0]
  expected = (loss(1e-5) - loss(-1e-5)) / 2e-5
  grads = run(exemplars)[1]
  np.testing.assert_allclose(np.sum(grads * direction), expected, rtol=1e-6)


def test_only_active_classes_compete(x64):
  exemplars, variables, batch = draw()
  exemplars = exemplars._replace(labels=exemplars.labels % 2)
  batch = batch[0], batch[1] % 2
  active = jnp.array([True, True, False])
  actual = jitted(variables, batch, ALL, active=active)(exemplars)
  two = lambda v, x: apply_fn(v, x)[:, :2]
  expected = quick_jit(
    functools.partial(bilevel.hypergradient, apply_fn=two, config=ALL)
  )(exemplars, variables, batch)
  assert_trees_close(actual, expected)


def test_augmentation_is_what_the_base_level_sees(x64):
  exemplars, variables, batch = draw()
  config = change(ALL, augment=lambda key, x: x[:, :, ::-1] * 0.5)
  loss, grads = jitted(variables, batch, config, key=jax.random.key(0))(
    exemplars
  )
  seen = exemplars._replace(images=exemplars.images[:, :, ::-1] * 0.5)
  expected_loss, expected = jitted(variables, batch, ALL)(seen)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-12)
  np.testing.assert_allclose(grads, 0.5 * expected[:, :, ::-1], rtol=1e-9)


def test_one_step_equals_the_closed_form(x64):
  """−α · ∂/∂e ⟨∇L_val(θ'), ∇L_train(θ; e)⟩ with θ' held constant."""
  exemplars, variables, batch = draw()
  alpha = 0.3
  on = lambda p: {**variables, "params": p}
  params = variables["params"]
  train_grad = lambda e: jax.grad(
    lambda p: plain_loss(on(p), e, exemplars.labels)
  )(params)
  moved = jax.tree.map(
    lambda p, g: p - alpha * g, params, quick_jit(train_grad)(exemplars.images)
  )
  val_grad = quick_jit(jax.grad(lambda p: plain_loss(on(p), *batch)))(moved)

  def inner_product(e):
    pairs = zip(
      jax.tree.leaves(val_grad), jax.tree.leaves(train_grad(e)), strict=True
    )
    return sum(jnp.vdot(a, b) for a, b in pairs)

  expected = -alpha * quick_jit(jax.grad(inner_product))(exemplars.images)
  config = change(ALL, inner_steps=1, inner_lr=alpha)
  loss, grads = jitted(variables, batch, config)(exemplars)
  np.testing.assert_allclose(loss, plain_loss(on(moved), *batch), rtol=1e-12)
  np.testing.assert_allclose(grads, expected, rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize("silent", [dict(inner_steps=0), dict(inner_lr=0.0)])
def test_nothing_learned_gives_exactly_zero(x64, silent):
  exemplars, variables, batch = draw()
  loss, grads = jitted(variables, batch, change(ALL, **silent))(exemplars)
  assert not np.any(grads)
  np.testing.assert_allclose(loss, plain_loss(variables, *batch), rtol=1e-12)


def test_a_cut_inner_gradient_gives_zero(x64):
  exemplars, variables, batch = draw()
  sgd = optax.sgd(0.3)

  def cut(grads, state, params=None):
    return sgd.update(jax.lax.stop_gradient(grads), state, params)

  config = change(
    ALL, inner_optimizer=optax.GradientTransformation(sgd.init, cut)
  )
  loss, grads = jitted(variables, batch, config)(exemplars)
  assert not np.any(grads)
  whole_loss, whole = jitted(variables, batch, ALL)(exemplars)
  np.testing.assert_allclose(loss, whole_loss, rtol=1e-12)
  assert np.abs(whole).max() > 1e-4


@pytest.mark.parametrize("base", [ALL, HEAD], ids=["all", "head"])
def test_remat_and_full_truncation_change_nothing(x64, base):
  exemplars, variables, batch = draw()
  base = change(base, inner_steps=13, inner_lr=0.1)
  expected = jitted(variables, batch, base)(exemplars)
  for variant in (
    dict(remat="step"),
    dict(remat="nested"),
    dict(truncate=13),
    dict(truncate=99),
  ):
    actual = jitted(variables, batch, change(base, **variant))(exemplars)
    assert_trees_close(actual, expected, rtol=1e-9)


def test_truncation_differentiates_the_last_steps_only(x64):
  exemplars, variables, batch = draw()
  early = change(ALL, inner_steps=2)
  middle = unrolled(exemplars, variables, early)
  late = change(ALL, inner_steps=3)
  expected = jitted(middle, batch, late)(exemplars)
  config = change(ALL, inner_steps=5, truncate=3, remat="step")
  actual = jitted(variables, batch, config)(exemplars)
  assert_trees_close(actual, expected)
  none = jitted(variables, batch, change(config, truncate=0))(exemplars)
  assert not np.any(none[1])


def test_head_scope_equals_the_general_path_with_frozen_backbone(x64):
  exemplars, variables, batch = draw()
  exemplars = exemplars._replace(mask=jnp.asarray(HALF_MASK))
  on_features = change(HEAD, head_start="model")
  actual = jitted(variables, batch, on_features)(exemplars)
  freeze = optax.partition(
    {"head": optax.sgd(0.3), "backbone": optax.set_to_zero()},
    {"head": "head", "backbone": "backbone"},
  )
  general = jitted(variables, batch, change(ALL, inner_optimizer=freeze))
  assert_trees_close(actual, general(exemplars))
  cached = Features(features_fn(variables, batch[0]), batch[1])
  again = jitted(variables, cached, on_features)(exemplars)
  assert_trees_close(again, actual)


@pytest.mark.parametrize("base", [ALL, HEAD], ids=["all", "head"])
def test_permuting_exemplars_permutes_their_gradients(x64, base):
  exemplars, variables, batch = draw()
  order = jnp.array([3, 1, 5, 0, 4, 2])  # within classes 0 and 2
  assert np.array_equal(exemplars.labels[order], exemplars.labels)
  run = jitted(variables, batch, base)
  loss, grads = run(exemplars)
  permuted = exemplars._replace(images=exemplars.images[order])
  loss_permuted, grads_permuted = run(permuted)
  np.testing.assert_allclose(loss, loss_permuted, rtol=1e-12)
  np.testing.assert_allclose(grads_permuted, grads[order], rtol=1e-9)


@pytest.mark.parametrize("base", [ALL, HEAD], ids=["all", "head"])
def test_masked_exemplars_get_no_gradient_and_change_nothing(x64, base):
  exemplars, variables, batch = draw()
  masked = exemplars._replace(mask=jnp.asarray(HALF_MASK))
  run = jitted(variables, batch, base)
  loss, grads = run(masked)
  assert not np.any(grads[4:])
  other = masked._replace(
    images=masked.images.at[4:].set(0.5), labels=masked.labels.at[4:].set(0)
  )
  for a, b in zip(run(other), (loss, grads), strict=True):
    np.testing.assert_array_equal(a, b)
  fewer = Exemplars(exemplars.images[:4], exemplars.labels[:4])
  assert_trees_close(run(fewer), (loss, grads[:4]))


def test_edge_cases_stay_finite():
  exemplars, variables, batch = draw(np.float32)
  black = lambda v, x: 0 * features_fn(v, x)
  cases = [
    (exemplars, change(HEAD, features_fn=black), {}),
    (jax.tree.map(lambda x: x[:3], exemplars), HEAD, {}),
    (exemplars._replace(labels=jnp.zeros(6, int)), HEAD, {}),
    (exemplars._replace(mask=exemplars.labels != 1), HEAD, {}),
    (exemplars._replace(mask=jnp.zeros(6, bool)), HEAD, {}),
    (exemplars._replace(mask=jnp.zeros(6, bool)), ALL, {}),
    (
      exemplars._replace(labels=jnp.zeros(6, int)),
      ALL,
      dict(active=jnp.array([True, False, False])),
    ),
  ]
  for case, config, kwargs in cases:
    one_class = (batch[0], batch[1] * 0)
    run = jitted(variables, one_class, config, **kwargs)
    loss, grads = run(case)
    assert np.isfinite(loss) and np.isfinite(grads).all()
