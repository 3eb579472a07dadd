"""Features, logits and confusion of images."""

import jax
import numpy as np

from mnemonics_jax import methods
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.heads import LinearHead
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase import evaluate


def test_confusion():
  counts = evaluate.confusion(np.array([0, 0, 1]), np.array([0, 1, 1]), 2)
  assert counts.tolist() == [[1, 1], [0, 1]]


def test_extract_pads_the_last_block_without_a_trace():
  """260 images: one block is full, the next one hardly."""
  network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  model = Model(network, LinearHead(), 3)
  variables = model.init(jax.random.key(0))
  images = np.random.default_rng(0).integers(0, 256, (260, 8, 8, 3), np.uint8)
  features, logits = evaluate.extract(model, methods.LwF(), variables, images)
  floats = images.astype(np.float32) / 255
  outputs, _ = jax.jit(model.apply)(variables, floats)
  np.testing.assert_allclose(features, outputs.features, rtol=1e-4, atol=1e-5)
  np.testing.assert_allclose(logits, outputs.logits, rtol=1e-4, atol=1e-5)


def test_a_new_head_needs_no_second_pass(monkeypatch):
  network = networks.resnet8(width=4, image_shape=(8, 8, 3))
  model, method = Model(network, LinearHead(), 3), methods.LwF()
  before, after = (model.init(jax.random.key(seed)) for seed in (0, 1))
  after["params"]["backbone"] = before["params"]["backbone"]
  images = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 3), np.uint8)
  labels = np.arange(9) % 3
  rest = (images, labels), (images[:3], labels[:3]), 3
  first = evaluate.evaluate(model, method, before, *rest)
  whole = evaluate.evaluate(model, method, after, *rest)
  assert (first.confusion["head"] != whole.confusion["head"]).any()
  monkeypatch.setattr(evaluate, "extract", None)
  again = evaluate.evaluate(model, method, after, *rest, first)
  jax.tree.map(np.testing.assert_array_equal, again, whole)
