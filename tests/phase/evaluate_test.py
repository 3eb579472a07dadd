"""Read-outs by hand."""

import jax
import numpy as np

from mnemonics_jax import methods
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.heads import LinearHead
from mnemonics_jax.nn.model import Model
from mnemonics_jax.phase import evaluate


def test_head_reads_only_seen_classes():
  logits = np.array([[1.0, 3.0, 9.0], [4.0, 2.0, 9.0]])
  assert evaluate.head_predictions(logits, 2).tolist() == [1, 0]


def test_nme_by_hand():
  exemplars = np.array([[2.0, 0.0], [0.0, 5.0], [0.0, 1.0]])
  labels = np.array([0, 1, 1])
  features = np.array([[9.0, 1.0], [1.0, 1.1], [-1.0, 0.5]])
  guesses = evaluate.nme_predictions(features, exemplars, labels, 2)
  assert guesses.tolist() == [0, 1, 1]


def test_nme_averages_directions_not_lengths():
  """A long exemplar does not outweigh a short one of its class."""
  exemplars = np.array([[100.0, 0.0], [0.0, 1.0], [0.6, 0.8]])
  labels = np.array([0, 0, 1])
  # Class 0 points along (1, 1), class 1 along (0.6, 0.8).
  feature = np.array([[0.75, 0.7]])
  assert evaluate.nme_predictions(feature, exemplars, labels, 2).tolist() == [0]


def test_class_means_of_features_that_come_in_parts():
  one, two = np.array([[3.0, 4.0]]), np.array([[0.0, 2.0], [5.0, 0.0]])
  parts = [(one, np.array([1])), (two, np.array([1, 2]))]
  means = evaluate.class_means(iter(parts), 4)
  np.testing.assert_allclose(
    means, [[0, 0], [0.3, 0.9], [1, 0], [0, 0]], rtol=1e-6
  )


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
