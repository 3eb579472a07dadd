"""The base level of the bilevel program and the gradient through it.

`unroll` trains a temporary model Θ' on the exemplars; `hypergradient`
differentiates its validation loss with respect to the exemplars' pixels.
What is unrolled (the scope) and how it is differentiated (`remat`, `truncate`)
are settings; the loss knows of neither.
"""

from collections.abc import Callable, Mapping
import functools
from typing import Any, NamedTuple

import jax
from jax import lax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float
import optax

from mnemonics_jax.bilevel.config import DEFAULT, ApplyFn, BilevelConfig
from mnemonics_jax.bilevel.data import (
  Data,
  Features,
  as_data,
  check_exemplars,
  check_functions,
  check_model,
  flatten_steps,
  shuffle,
  take,
)
from mnemonics_jax.errors import UserError
from mnemonics_jax.losses import cross_entropy
from mnemonics_jax.nn import heads
from mnemonics_jax.nn.pixels import from_uint8
from mnemonics_jax.types import Exemplars, PyTree, Variables

_SEGMENTS = 10  # states a level of `remat="nested"` keeps at most


def unroll(
  exemplars: Exemplars,
  variables: Variables,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  key: Array | None = None,
  active: Bool[Array, " classes"] | None = None,
  inner_data: Data | None = None,
) -> Variables:
  """The temporary model after the base level, Θ' ← Θ' − α₂ ∇ L_c(Θ'; E).

  One step on one white pixel of class 0; p − y is (−1/2, 1/2):

  >>> apply_fn = lambda variables, x: x[:, 0, 0] @ variables["params"]["w"]
  >>> variables = {"params": {"w": jnp.zeros((1, 2))}}
  >>> exemplars = Exemplars(jnp.ones((1, 1, 1, 1)), jnp.array([0]))
  >>> config = BilevelConfig(inner_steps=1, inner_lr=1.0)
  >>> trained = unroll(exemplars, variables, apply_fn=apply_fn, config=config)
  >>> trained["params"]["w"].tolist()
  [[0.5, -0.5]]

  Args:
    exemplars: E, the data of the base level.
    variables: Θ, where it starts; the trained part lies under `params`.
    apply_fn: `(variables, images) -> logits`; may be left out when the config
      has `features_fn` and `head_fn`.
    config: the settings.
    key: randomness of augmentation and mini-batches; only needed for those.
    active: classes that compete in the softmax; None is all of them.
    inner_data: real samples with a leading axis of `inner_steps`, mixed into
      the base level: step t trains on the exemplars and on `inner_data[t]`.

  Returns:
    `variables` with the trained part replaced; everything else, batch
    statistics included, is what came in.
  """
  config = config.resolve()
  check(exemplars, variables, None, apply_fn, config, active, inner_data)
  model = _model(variables, apply_fn, config)
  trained = _base_level(exemplars, model, key, active, inner_data, config)
  return model.merge(trained)


def hypergradient(
  exemplars: Exemplars,
  variables: Variables,
  batch: Data,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  key: Array | None = None,
  active: Bool[Array, " classes"] | None = None,
  inner_data: Data | None = None,
) -> tuple[Float[Array, ""], Float[Array, "n h w c"]]:
  """Validation loss L_c(Θ'(E); V) and its gradient ∇_E, as in Eq. 9.

  Pure and jittable; the arguments are those of `unroll`, and so is the example:
  the pixel x trains w = (x/2, −x/2), whose loss on a white pixel is log(1 + e⁻ˣ).

  >>> apply_fn = lambda variables, x: x[:, 0, 0] @ variables["params"]["w"]
  >>> variables = {"params": {"w": jnp.zeros((1, 2))}}
  >>> white = Exemplars(jnp.ones((1, 1, 1, 1)), jnp.array([0]))
  >>> config = BilevelConfig(inner_steps=1, inner_lr=1.0)
  >>> loss, gradient = hypergradient(
  ...   white, variables, white, apply_fn=apply_fn, config=config)
  >>> round(float(loss), 4), round(gradient.item(), 4)  # −1 / (1 + e)
  (0.3133, -0.2689)

  Args:
    batch: V, labelled images (uint8 or float in [0, 1]) or cached `Features`.

  Returns:
    The loss and its gradient in the shape of `exemplars.images`.
  """
  config, batch = config.resolve(), as_data(batch)
  check(exemplars, variables, batch, apply_fn, config, active, inner_data)
  rest = variables, batch, apply_fn, config, key, active, inner_data
  images = jnp.asarray(exemplars.images)
  return jax.value_and_grad(_meta_loss)(images, exemplars, *rest)


def meta_loss(
  exemplars: Exemplars,
  variables: Variables,
  batch: Data,
  *,
  apply_fn: ApplyFn | None = None,
  config: BilevelConfig = DEFAULT,
  key: Array | None = None,
  active: Bool[Array, " classes"] | None = None,
  inner_data: Data | None = None,
) -> Float[Array, ""]:
  """Validation loss L_c(Θ'(E); V) alone; the arguments are `hypergradient`'s."""
  config, batch = config.resolve(), as_data(batch)
  check(exemplars, variables, batch, apply_fn, config, active, inner_data)
  rest = variables, batch, apply_fn, config, key, active, inner_data
  return _meta_loss(exemplars.images, exemplars, *rest)


def _meta_loss(
  images, exemplars, variables, batch, apply_fn, config, key, active, inner_data
):
  exemplars = exemplars._replace(images=images)
  model = _model(variables, apply_fn, config)
  trained = _base_level(exemplars, model, key, active, inner_data, config)
  logits = model.forward(trained, model.inputs(batch))
  return cross_entropy(logits, batch.labels, active, batch.mask)


class _Model(NamedTuple):
  """Θ as the base level sees it.

  Attributes:
    trained: the part that the base level trains.
    merge: puts a trained part back among the variables.
    inputs: labelled data -> what `forward` takes (images or features).
    forward: (trained, inputs) -> logits.
  """

  trained: PyTree
  merge: Callable[[PyTree], Variables]
  inputs: Callable[[Any], Array]
  forward: Callable[[PyTree, Array], Array]


def check(exemplars, variables, batch, apply_fn, config, active, inner_data):
  """Raises an error that names the mistake, before anything is traced."""
  check_functions(apply_fn, config)
  check_exemplars(exemplars)

  def logits_of(variables, data):
    model = _model(variables, apply_fn, config)
    return model.forward(model.trained, model.inputs(data))

  logits = jax.eval_shape(logits_of, variables, exemplars)
  check_model(logits, exemplars, batch, active, inner_data, config)


def _model(variables, apply_fn, config) -> _Model:
  mode = {} if config.batch_norm == "frozen" else {"train": True}
  name = "transfer" if config.scope == "transfer" else "params"
  try:
    trained = variables[name]
    if config.scope == "head":
      trained = trained["head"]
  except (KeyError, TypeError, IndexError):
    missing = '["params"]["head"]' if config.scope == "head" else f'["{name}"]'
    raise UserError(
      "scope",
      f'scope="{config.scope}" trains variables{missing}, which does not exist',
      "choose another scope, or pass variables that have it",
    ) from None

  def merge(part):
    if config.scope == "head":
      part = {**variables["params"], "head": part}
    return {**variables, name: part}

  def composed(variables, images, **mode):
    features = config.features_fn(variables, images, **mode)
    return config.head_fn(variables["params"]["head"], features)

  def inputs(data):
    if isinstance(data, Features):
      return data.features
    images = from_uint8(data.images)
    if not config.on_features:
      return images
    return config.features_fn(variables, images, **mode)

  def forward(part, inputs):
    if config.on_features:
      return config.head_fn(part, inputs)
    return (apply_fn or composed)(merge(part), inputs, **mode)

  return _Model(trained, merge, inputs, forward)


def _base_level(exemplars, model, key, active, inner_data, config) -> PyTree:
  """Trains `model` on the exemplars and returns its trained part."""
  view_key, order_key = _keys(key, config)
  images, labels, mask = exemplars
  if config.stored_fn is not None:
    images = config.stored_fn(images)
  if config.augment is not None:
    images = config.augment(view_key, images)
  if mask is None:
    mask = jnp.ones(len(labels), bool)
  if config.batch_norm == "batch":
    # Padding must not enter the statistics: it becomes copies of real rows.
    rows, mask = take(jnp.argsort(~mask), mask, len(labels), 0)
    images, labels = images[rows], labels[rows]
  inputs = model.inputs(Exemplars(images, labels))
  order = shuffle(order_key, mask) if config.inner_batch_size else None

  trained = model.trained
  if config.on_features and config.head_start == "imprint":
    imprint_fn = config.imprint_fn or imprint
    trained = imprint_fn(trained, inputs, labels, mask)
  tx = config.inner_optimizer or optax.sgd(config.inner_lr)

  def objective(trained, batch):
    if config.inner_loss is not None:
      return config.inner_loss(model.merge(trained), batch)
    logits = model.forward(trained, batch.images)
    return cross_entropy(logits, batch.labels, active, batch.mask)

  def step(inputs, carry, x):
    trained, opt_state = carry
    t, extra = x
    batch = Exemplars(inputs, labels, mask)
    if order is not None:
      rows, real = take(order, mask, config.inner_batch_size, t)
      batch = Exemplars(inputs[rows], labels[rows], real)
    if extra is not None:
      batch = jax.tree.map(lambda *parts: jnp.concatenate(parts), batch, extra)
    grads = jax.grad(objective)(trained, batch)
    updates, opt_state = tx.update(grads, opt_state, trained)
    return (optax.apply_updates(trained, updates), opt_state), None

  steps = jnp.arange(config.inner_steps)
  xs = steps, _extra(inner_data, model)
  carry = trained, tx.init(trained)
  k = config.truncate
  if k is not None and k < config.inner_steps:
    early, xs = _split(xs, config.inner_steps - k)
    blind = functools.partial(step, lax.stop_gradient(inputs))
    carry = lax.scan(blind, lax.stop_gradient(carry), early)[0]
  return _scan(functools.partial(step, inputs), carry, xs, config.remat)[0]


def _extra(inner_data, model) -> Exemplars | None:
  """Real batches of the base level, as inputs of the model, per step."""
  if inner_data is None:
    return None
  labels = inner_data[1]
  flat = flatten_steps(inner_data)
  inputs = model.inputs(flat)
  inputs = inputs.reshape(*labels.shape, *inputs.shape[1:])
  real = jnp.ones(labels.shape, bool)
  if flat.mask is not None:
    real = flat.mask.reshape(labels.shape)
  return Exemplars(inputs, labels, real)


def _scan(step, carry, xs, remat):
  """`lax.scan` to the last carry; its backward pass stores what `remat` says.

  `nested` cuts the steps into at most ten segments, each again cut in the same
  way, and stores only the carries where segments of the current path begin:
  their number grows with the logarithm of the steps, as does the recomputation.
  """
  length = len(jax.tree.leaves(xs)[0])
  if remat == "none":
    return lax.scan(step, carry, xs)[0]
  if remat == "step" or length <= _SEGMENTS:
    return lax.scan(jax.checkpoint(step, prevent_cse=False), carry, xs)[0]
  count = max(d for d in range(1, _SEGMENTS + 1) if length % d == 0)
  if count == 1:  # no equal segments: one step by itself, then the rest
    first, xs = _split(xs, 1)
    carry = _scan(step, carry, first, remat)
    return _scan(step, carry, xs, remat)
  fold = lambda x: x.reshape(count, length // count, *x.shape[1:])
  segment = lambda carry, xs: (_scan(step, carry, xs, remat), None)
  segment = jax.checkpoint(segment, prevent_cse=False)
  return lax.scan(segment, carry, jax.tree.map(fold, xs))[0]


def _split(xs, t):
  """Step-wise data before and from step t."""
  return jax.tree.map(lambda x: x[:t], xs), jax.tree.map(lambda x: x[t:], xs)


def imprint(head: PyTree, features: Array, labels: Array, mask: Array):
  """Unit class means of the exemplars' unit features as rows of the head.

  Differentiable, so exemplars also learn through where the head starts.
  Classes without an exemplar keep the model's row.
  """
  if not isinstance(head, Mapping) or "weight" not in head:
    raise UserError(
      "head_start",
      'head_start="imprint" sets head["weight"], which there is not',
      'give the config an imprint_fn, or head_start="model"',
    )
  classes = jnp.arange(len(head["weight"]))
  member = (labels[None, :] == classes[:, None]) & mask[None, :]
  sums = member.astype(features.dtype) @ heads.normalize(features)
  return heads.imprint(head, sums, member.any(axis=1))


def _keys(key, config) -> Any:
  if key is not None:
    return jax.random.split(key)
  if config.augment is not None or config.inner_batch_size is not None:
    raise UserError(
      "key", "The config draws at random", "pass key=jax.random.key(...)"
    )
  return None, None
