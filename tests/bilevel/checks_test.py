"""Mistakes are explained before anything is traced."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from support.conv_model import (
  ALL,
  ON_FEATURES,
  apply_fn,
  change,
  draw,
)

from mnemonics_jax import bilevel
from mnemonics_jax.bilevel import BilevelConfig, Exemplars, Features
from mnemonics_jax.errors import UserError

EXEMPLARS, VARIABLES, (IMAGES, LABELS) = draw(np.float32)
ONLY_PARAMS = {"params": VARIABLES["params"]}


def _with(**fields):
  return dict(exemplars=EXEMPLARS._replace(**fields))


def _cast(dtype):
  return _with(images=EXEMPLARS.images.astype(dtype))


CASES = {
  "bfloat16": (_cast(jnp.bfloat16), "bfloat16, which"),
  "float16": (_cast(jnp.float16), "float16, which"),
  "uint8": (_cast(jnp.uint8), "from_uint8"),
  "grey levels": (
    _with(images=255 * EXEMPLARS.images),
    "divide 8-bit values by 255",
  ),
  "not a number": (
    _with(images=EXEMPLARS.images.at[0, 0, 0].set(jnp.nan)),
    r"exemplars.images has 1 values that are no numbers",
  ),
  "a list of images": (
    _with(images=EXEMPLARS.images.tolist()),
    "images of exemplars is a list, not an array",
  ),
  "a list of labels": (
    _with(labels=EXEMPLARS.labels.tolist()),
    "labels of exemplars is a list",
  ),
  "a list as mask": (
    _with(mask=[True] * 6),
    "mask of exemplars is a list",
  ),
  "a list of data": (
    dict(batch=(IMAGES, LABELS.tolist())),
    "labels of validation data is a list",
  ),
  "a list of inner data": (
    dict(inner_data=(IMAGES.tolist(), LABELS)),
    "of inner_data is a list",
  ),
  "a list of active classes": (
    dict(active=[True, True, True]),
    "active is a list",
  ),
  "no real exemplar": (
    _with(mask=jnp.zeros(6, bool)),
    "mask of exemplars leaves none of its 6 rows",
  ),
  "no real data": (
    dict(batch=(IMAGES, LABELS, jnp.zeros(8, bool))),
    "mask of validation data leaves none of its 8 rows",
  ),
  "no exemplars": (
    dict(exemplars=Exemplars(IMAGES[:0], LABELS[:0])),
    "at least one image",
  ),
  "a label too high": (
    _with(labels=EXEMPLARS.labels.at[0].set(3)),
    r"Label 3 is in exemplars.*3 logits",
  ),
  "too few labels": (
    _with(labels=EXEMPLARS.labels[:5]),
    "give integer class indices",
  ),
  "a mask of numbers": (
    _with(mask=jnp.ones(6)),
    "mask of exemplars is float32",
  ),
  "data of half precision": (
    dict(batch=(IMAGES.astype(jnp.bfloat16), LABELS)),
    "validation data is bfloat16",
  ),
  "no data": (
    dict(batch=(IMAGES[:0], LABELS[:0])),
    "There is no validation data",
  ),
  "data of four parts": (
    dict(batch=(IMAGES, LABELS, None, None)),
    r"pass \(images, labels\)",
  ),
  "too many active classes": (
    dict(active=jnp.ones(4, bool)),
    "pass bool.3.",
  ),
  "an inactive class": (
    dict(active=jnp.arange(3) > 0),
    r"Class 0 .* not active",
  ),
  "no transfer": (
    dict(config=change(ALL, scope="transfer"), variables=ONLY_PARAMS),
    "which does not exist",
  ),
  "a model that returns more": (
    dict(apply_fn=lambda v, x: (apply_fn(v, x), {})),
    "logits .images, classes. and nothing",
  ),
  "a model without a mode": (
    dict(
      apply_fn=lambda v, x: apply_fn(v, x),
      config=change(ALL, batch_norm="batch"),
    ),
    "no such argument",
  ),
  "no key": (
    dict(config=change(ALL, augment=lambda key, x: x)),
    "pass key=",
  ),
  "two inner batches for three steps": (
    dict(inner_data=(IMAGES.reshape(2, 4, 4, 4, 1), LABELS.reshape(2, 4))),
    "inner_steps=3",
  ),
  "a head without features": (
    dict(config=change(ALL, scope="head")),
    "features_fn and head_fn",
  ),
  "no model": (dict(apply_fn=None), "No model"),
  "features for a whole model": (
    dict(batch=Features(IMAGES.reshape(8, -1), LABELS)),
    "Cached Features only serve",
  ),
}


@pytest.mark.parametrize("case", CASES)
def test_mistakes_are_explained(unchecked, case):
  changes, message = CASES[case]
  call = dict(
    exemplars=EXEMPLARS,
    variables=VARIABLES,
    batch=(IMAGES, LABELS),
    apply_fn=apply_fn,
    config=ALL,
  )
  with pytest.raises(UserError, match=message):
    bilevel.hypergradient(**(call | changes))


def test_masked_rows_are_nobodys_mistake():
  """Whatever stands in them is never looked at."""
  wild = Exemplars(
    EXEMPLARS.images.at[5].set(99.0),
    EXEMPLARS.labels.at[5].set(77),
    jnp.arange(6) < 5,
  )
  bilevel.prepare(
    wild, VARIABLES, (IMAGES, LABELS), apply_fn=apply_fn, config=ALL
  )


@pytest.mark.parametrize("count", [1.5, -1, "2"])
def test_steps_are_whole(unchecked, count):
  problem = bilevel.prepare(
    EXEMPLARS, VARIABLES, (IMAGES, LABELS), apply_fn=apply_fn, config=ALL
  )
  state = bilevel.init(jax.random.key(0), EXEMPLARS, ALL)
  with pytest.raises(ValueError, match=f"`count={count}` .* whole number"):
    bilevel.steps(problem, state, count)
  with pytest.raises(ValueError, match=r"parts=1.5 .* whole number"):
    bilevel.init_parts(jax.random.key(0), EXEMPLARS, ALL, parts=1.5)


def test_starts_must_be_stacked_variables_and_fit_the_data():
  prepare = lambda starts, data=(IMAGES, LABELS): bilevel.prepare(
    EXEMPLARS, VARIABLES, data, apply_fn=apply_fn, config=ALL, starts=starts
  )
  prepare(jax.tree.map(lambda x: jnp.stack([x, x]), VARIABLES))
  with pytest.raises(ValueError, match="one more axis"):
    prepare(VARIABLES)
  with pytest.raises(ValueError, match="one more axis"):
    prepare({"params": VARIABLES["params"]})


# Pixels that no model should see, given to the bilevel program.


BAD_PIXELS = {"nan": np.nan, "infinite": np.inf, "negative": -0.1, "8 bit": 255}


@pytest.mark.parametrize("kind", BAD_PIXELS)
@pytest.mark.parametrize("where", ["exemplars", "validation data"])
def test_pixels_that_are_not_in_the_unit_interval(where, kind):
  good = np.full((4, 2, 2, 3), 0.5, np.float32)
  bad = good.copy()
  bad[1, 0, 0, 0] = BAD_PIXELS[kind]
  labels = np.array([0, 1, 0, 1])
  exemplars, data = (bad, good) if where == "exemplars" else (good, bad)

  def apply_fn(variables, images):
    return images.reshape(len(images), -1) @ variables["params"]["w"]

  def optimize(exemplars, data):
    return bilevel.optimize_exemplars(
      jax.random.key(0),
      exemplars,
      {"params": {"w": np.zeros((12, 2), np.float32)}},
      data,
      apply_fn=apply_fn,
      config=bilevel.BilevelConfig(epochs=0),
    )

  advice = "divide" if np.isfinite(BAD_PIXELS[kind]) else "look at where"
  with pytest.raises(ValueError, match=rf"{where}.* \[0, 1\]; {advice}"):
    optimize(bilevel.Exemplars(exemplars, labels), (data, labels))
  # Rows that are masked out may hold anything.
  mask = np.array([True, False, True, True])
  optimize(
    bilevel.Exemplars(exemplars, labels, mask),
    bilevel.Exemplars(data, labels, mask),
  )


# Settings of the bilevel program: defaults and refusals.


@pytest.mark.parametrize(
  ("field", "value"),
  [
    ("scope", "body"),
    ("inner_steps", -1),
    ("inner_steps", 2.5),
    ("inner_steps", 2.0),
    ("epochs", 1.5),
    ("steps_per_epoch", 0.5),
    ("batch_size", 10.0),
    ("inner_batch_size", "4"),
    ("truncate", 1.5),
    ("inner_lr", -0.1),
    ("inner_lr", float("nan")),
    ("outer_lr", -1e-9),
    ("outer_lr", float("inf")),
    ("max_change", 1.5),
    ("max_change", float("nan")),
  ],
)
def test_config_refuses_nonsense(unchecked, field, value):
  with pytest.raises(UserError, match=f"`{field}={value}`") as error:
    BilevelConfig(**{field: value})
  assert error.value.field == field


def test_counts_may_be_numpy_integers(unchecked):
  assert BilevelConfig(inner_steps=np.int64(3)).inner_steps == 3


def test_config_defaults_suit_the_functions_given():
  plain = BilevelConfig().resolve()
  assert (plain.scope, plain.inner_lr, plain.batch_size) == ("all", 0.02, 128)
  head = BilevelConfig(**ON_FEATURES).resolve()
  assert (head.scope, head.inner_lr, head.batch_size) == ("head", 1.0, 4096)
  paper = BilevelConfig.paper(remat="nested")
  assert (paper.inner_steps, paper.inner_lr, paper.outer_lr) == (50, 0.01, 0.01)
  assert (paper.epochs, paper.max_change, paper.scope) == (50, None, "all")
  assert hash(paper) == hash(BilevelConfig.paper(remat="nested"))
