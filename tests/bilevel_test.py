"""The hypergradient, against finite differences and closed forms."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mnemonics_jax import bilevel
from mnemonics_jax.augment import CropFlip
from mnemonics_jax.bilevel import BilevelConfig, Exemplars, Features

CLASSES = 3


def features_fn(variables, images, train=False):
  """Convolution, batch normalisation, tanh, pooling: smooth everywhere."""
  backbone = variables["params"]["backbone"]
  kernel = backbone["kernel"] * variables["transfer"]["scale"]
  x = jax.lax.conv_general_dilated(
    images, kernel, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
  )
  mean, var = variables["batch_stats"]["mean"], variables["batch_stats"]["var"]
  if train:
    mean, var = x.mean((0, 1, 2)), x.var((0, 1, 2))
  x = (x - mean) * jax.lax.rsqrt(var + 1e-3) * backbone["gain"]
  x = jnp.tanh(x + backbone["bias"])
  return x.reshape(len(x), 2, 2, 4, -1).mean((2, 3)).reshape(len(x), -1)


def head_fn(head, features):
  unit = lambda x: x * jax.lax.rsqrt(jnp.sum(x**2, -1, keepdims=True) + 1e-12)
  return head["sigma"] * unit(features) @ unit(head["weight"]).T


def apply_fn(variables, images, train=False):
  features = features_fn(variables, images, train)
  return head_fn(variables["params"]["head"], features)


@pytest.fixture
def x64():
  with jax.enable_x64(True):
    yield


def problem(dtype=np.float64, n=6, seed=0):
  rng = np.random.default_rng(seed)
  normal = lambda *shape: jnp.asarray(rng.normal(size=shape), dtype)
  uniform = lambda *shape: jnp.asarray(rng.uniform(0.05, 0.95, shape), dtype)
  variables = {
    "params": {
      "backbone": {
        "kernel": normal(3, 3, 1, 2),
        "gain": 1 + 0.1 * normal(2),
        "bias": 0.1 * normal(2),
      },
      "head": {"weight": normal(CLASSES, 4), "sigma": jnp.asarray(4.0, dtype)},
    },
    "transfer": {"scale": 1 + 0.1 * normal(1, 1, 1, 2)},
    "batch_stats": {"mean": 0.1 * normal(2), "var": 1 + uniform(2)},
  }
  exemplars = Exemplars(uniform(n, 4, 4, 1), jnp.arange(n) % CLASSES)
  batch = uniform(8, 4, 4, 1), jnp.asarray(rng.integers(0, CLASSES, 8))
  return exemplars, variables, batch


HALF_MASK = np.array([True, True, True, True, False, False])
ON_FEATURES = dict(features_fn=features_fn, head_fn=head_fn)
ALL = BilevelConfig(scope="all", inner_steps=3, inner_lr=0.3, remat="none")
HEAD = BilevelConfig(inner_steps=3, inner_lr=0.3, remat="none", **ON_FEATURES)
change = dataclasses.replace


# Compiling costs more than running here: five times less without optimisation.
quick_jit = functools.partial(
  jax.jit,
  compiler_options={
    "xla_backend_optimization_level": 0,
    "xla_cpu_use_fusion_emitters": False,
  },
)


def jitted(variables, batch, config, **kwargs):
  """images -> (loss, gradient), compiled."""

  @quick_jit
  def run(exemplars, kwargs):
    return bilevel.hypergradient(
      exemplars, variables, batch, apply_fn=apply_fn, config=config, **kwargs
    )

  return lambda exemplars: run(exemplars, kwargs)


def unrolled(exemplars, variables, config, apply_fn=apply_fn, **kwargs):
  run = functools.partial(bilevel.unroll, apply_fn=apply_fn, config=config)
  return quick_jit(run)(exemplars, variables, **kwargs)


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
  exemplars, variables, batch = problem()
  if "masked" in case:
    exemplars = exemplars._replace(mask=jnp.asarray(HALF_MASK))
  run = jitted(variables, batch, CASES[case], key=jax.random.key(0))
  assert_matches_finite_differences(exemplars, run)


def test_inner_data_augmentation_and_active_classes(x64):
  exemplars, variables, batch = problem()
  _, _, (images, labels) = problem(seed=1)
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
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem()
  config = change(ALL, augment=lambda key, x: x[:, :, ::-1] * 0.5)
  loss, grads = jitted(variables, batch, config, key=jax.random.key(0))(
    exemplars
  )
  seen = exemplars._replace(images=exemplars.images[:, :, ::-1] * 0.5)
  expected_loss, expected = jitted(variables, batch, ALL)(seen)
  np.testing.assert_allclose(loss, expected_loss, rtol=1e-12)
  np.testing.assert_allclose(grads, 0.5 * expected[:, :, ::-1], rtol=1e-9)


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


def plain_loss(variables, images, labels):
  logp = jax.nn.log_softmax(apply_fn(variables, images))
  return -logp[jnp.arange(len(labels)), labels].mean()


def assert_trees_close(actual, expected, rtol=1e-9):
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12),
    actual,
    expected,
  )


def test_unroll_equals_a_loop_over_the_unmasked_exemplars(x64):
  exemplars, variables, _ = problem()
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
  exemplars, variables, batch = problem()
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


def test_mini_batches_visit_every_real_exemplar_equally_often(x64):
  exemplars = problem()[0]._replace(mask=jnp.asarray(HALF_MASK))
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
  exemplars, variables, batch = problem()
  config = change(ALL, batch_norm="batch")
  end = unrolled(exemplars, variables, config)
  for name in ("batch_stats", "transfer"):
    jax.tree.map(np.testing.assert_array_equal, end[name], variables[name])
  masked = exemplars._replace(mask=jnp.asarray(HALF_MASK))
  other = masked._replace(images=masked.images.at[4:].set(0.9))
  run = jitted(variables, batch, config)
  for a, b in zip(run(masked), run(other), strict=True):
    np.testing.assert_array_equal(a, b)


def test_one_step_equals_the_closed_form(x64):
  """−α · ∂/∂e ⟨∇L_val(θ'), ∇L_train(θ; e)⟩ with θ' held constant."""
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem()
  loss, grads = jitted(variables, batch, change(ALL, **silent))(exemplars)
  assert not np.any(grads)
  np.testing.assert_allclose(loss, plain_loss(variables, *batch), rtol=1e-12)


def test_a_cut_inner_gradient_gives_zero(x64):
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem()
  keep = lambda head, features, labels, mask: head
  own = jitted(variables, batch, change(HEAD, imprint_fn=keep))(exemplars)
  model = jitted(variables, batch, change(HEAD, head_start="model"))(exemplars)
  assert_trees_close(own, model)


@pytest.mark.parametrize("base", [ALL, HEAD], ids=["all", "head"])
def test_permuting_exemplars_permutes_their_gradients(x64, base):
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem()
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
  exemplars, variables, batch = problem(np.float32)
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


@pytest.mark.parametrize(
  ("broken", "error", "message"),
  [
    (dict(images=jnp.bfloat16), TypeError, "bfloat16; expected float32"),
    (dict(images=jnp.float16), TypeError, "float16; expected float32"),
    (dict(images=jnp.uint8), TypeError, "from_uint8"),
    (dict(scale=255), ValueError, "divide 8-bit values by 255"),
    (dict(label=3), ValueError, "Label 3 in exemplars.*3 logits"),
    (dict(rows=5), ValueError, "expected integer class indices"),
    (dict(batch=jnp.bfloat16), TypeError, "validation data is bfloat16"),
    (dict(active=jnp.ones(4, bool)), ValueError, "pass bool.3."),
    (dict(active=jnp.arange(3) > 0), ValueError, "Class 0 .* not active"),
    (dict(scope="transfer"), ValueError, "which does not exist"),
    (dict(tuple=True), ValueError, "logits .images, classes. and nothing"),
    (dict(train=True), ValueError, "no such argument"),
    (dict(augment=lambda k, x: x), ValueError, "pass key="),
    (dict(inner_data=2), ValueError, "inner_steps=3"),
    (dict(scope="head"), ValueError, "features_fn and head_fn"),
    (dict(apply_fn=None), ValueError, "No model"),
    (dict(features=True), ValueError, "Cached Features only serve"),
  ],
)
def test_mistakes_are_explained(broken, error, message):
  exemplars, variables, (images, labels) = problem(np.float32)
  config, kwargs, function = ALL, {}, apply_fn
  batch = images, labels
  if "images" in broken:
    exemplars = exemplars._replace(
      images=exemplars.images.astype(broken["images"])
    )
  if "scale" in broken:
    exemplars = exemplars._replace(images=exemplars.images * broken["scale"])
  if "label" in broken:
    exemplars = exemplars._replace(labels=exemplars.labels.at[0].set(3))
  if "rows" in broken:
    exemplars = exemplars._replace(labels=exemplars.labels[:5])
  if "batch" in broken:
    batch = images.astype(broken["batch"]), labels
  if "active" in broken:
    kwargs["active"] = broken["active"]
  if "scope" in broken:
    config = change(ALL, scope=broken["scope"])
    variables = {"params": variables["params"]}
  if "tuple" in broken:
    function = lambda v, x: (apply_fn(v, x), {})
  if "train" in broken:
    config = change(ALL, batch_norm="batch")
    function = lambda v, x: apply_fn(v, x)
  if "augment" in broken:
    config = change(ALL, augment=broken["augment"])
  if "inner_data" in broken:
    kwargs["inner_data"] = images.reshape(2, 4, 4, 4, 1), labels.reshape(2, 4)
  if "apply_fn" in broken:
    function = None
  if "features" in broken:
    batch = Features(images.reshape(8, -1), labels)
  with pytest.raises(error, match=message):
    bilevel.hypergradient(
      exemplars, variables, batch, apply_fn=function, config=config, **kwargs
    )


@pytest.mark.parametrize(
  ("field", "value"),
  [("scope", "body"), ("inner_steps", -1), ("max_change", 1.5)],
)
def test_config_refuses_nonsense(field, value):
  with pytest.raises(ValueError, match=field):
    BilevelConfig(**{field: value})


def test_config_defaults_suit_the_functions_given():
  plain = BilevelConfig().resolve()
  assert (plain.scope, plain.inner_lr, plain.batch_size) == ("all", 0.02, 128)
  head = BilevelConfig(**ON_FEATURES).resolve()
  assert (head.scope, head.inner_lr, head.batch_size) == ("head", 1.0, 4096)
  paper = BilevelConfig.paper(remat="nested")
  assert (paper.inner_steps, paper.inner_lr, paper.outer_lr) == (50, 0.01, 0.01)
  assert (paper.epochs, paper.max_change, paper.scope) == (50, None, "all")
  assert hash(paper) == hash(BilevelConfig.paper(remat="nested"))


def linear_problem(n):
  def apply_fn(variables, images):
    return images.reshape(len(images), -1) @ variables["params"]

  rng = np.random.default_rng(0)
  images = jnp.asarray(rng.uniform(size=(2 * n, 16, 16, 1)), jnp.float32)
  labels = jnp.arange(2 * n) % CLASSES
  variables = {"params": jnp.zeros((256, CLASSES))}
  exemplars = Exemplars(images[:n], labels[:n])
  return apply_fn, (exemplars, variables, (images[n:], labels[n:]))


def test_check_hypergradient_agrees_in_float32_and_finds_a_wrong_gradient():
  apply_fn, args = linear_problem(6)
  check = functools.partial(
    bilevel.check_hypergradient, jax.random.key(0), *args, apply_fn=apply_fn
  )
  config = change(ALL, inner_lr=0.01)
  result = check(config=config)
  assert result.method == "forward" and result.error < 1e-3
  result = check(config=config, method="finite")
  assert result.method == "finite" and result.error < 1e-3
  assert check(config=change(config, truncate=1), method="finite").error > 0.01


def test_check_hypergradient_serves_random_configs():
  apply_fn, args = linear_problem(6)
  config = change(
    ALL, inner_lr=0.01, inner_batch_size=2, augment=CropFlip(pad=1)
  )
  result = bilevel.check_hypergradient(
    jax.random.key(0), *args, apply_fn=apply_fn, config=config
  )
  assert result.error < 1e-3


def test_masked_rows_of_inner_data_do_not_count():
  apply_fn, (exemplars, variables, batch) = linear_problem(6)
  inner = [x.reshape(3, 2, *x.shape[1:]) for x in batch]
  train = lambda data: bilevel.unroll(
    exemplars, variables, apply_fn=apply_fn, config=ALL, inner_data=data
  )["params"]
  hidden = Exemplars(*inner, jnp.zeros((3, 2), bool))
  np.testing.assert_allclose(train(hidden), train(None), atol=1e-6)
  assert np.abs(train(Exemplars(*inner)) - train(None)).max() > 1e-3


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
