"""Pixels that no model should see, given to the bilevel program."""

import jax
import numpy as np
import pytest

from mnemonics_jax import bilevel

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
