"""What every read-out promises; and what head and nearest mean are by hand."""

import numpy as np
import pytest

from mnemonics_jax import registry
from mnemonics_jax.readouts import READOUTS, Head, NearestMean, class_means

RNG = np.random.default_rng(0)
CENTRES = 4 * RNG.normal(size=(3, 8)).astype(np.float32)
KEPT = np.repeat(np.arange(3), 5)
LABELS = np.tile(np.arange(3), 4)
every_readout = pytest.mark.parametrize("name", [*registry.READOUTS])


def near(labels):
  noise = RNG.normal(size=(len(labels), 8)).astype(np.float32)
  return CENTRES[labels] + noise / 8


FEATURES = near(LABELS)
EXEMPLARS = near(KEPT), KEPT
# Of a run of five classes; the two that are not seen yet would win.
LOGITS = (np.eye(5, dtype=np.float32)[LABELS] + [0, 0, 0, 9, 9]).astype("f")


def scores(name, rows=slice(None)):
  readout = READOUTS[name]()
  return readout.scores(FEATURES[rows], LOGITS[rows], lambda: EXEMPLARS, 3)


@every_readout
def test_seen_classes_have_a_score_each(name):
  found = scores(name)
  assert found.shape == (len(LABELS), 3) and np.isfinite(found).all()
  assert found.argmax(-1).tolist() == LABELS.tolist()


@every_readout
def test_images_are_scored_one_by_one(name):
  """So they may come in any number and order."""
  whole = scores(name)
  for row in range(len(LABELS)):
    alone = scores(name, slice(row, row + 1))
    np.testing.assert_allclose(alone, whole[row : row + 1], rtol=1e-5)


@every_readout
def test_probabilities_order_classes_as_scores_do(name):
  readout = READOUTS[name]()
  likely = readout.probabilities(scores(name))
  np.testing.assert_allclose(likely.sum(-1), 1.0, rtol=1e-5)
  assert (likely > 0).all()
  order = np.argsort(scores(name), -1)
  np.testing.assert_array_equal(np.argsort(likely, -1), order)
  huge = readout.probabilities(np.array([[1e4, 0.0]]))
  assert np.isfinite(huge).all()


@every_readout
def test_it_is_a_value_with_words(name):
  assert READOUTS[name]() == READOUTS[name]()
  assert registry.READOUTS[name].help


# By hand.


def nme(features, exemplars, labels, seen=2):
  known = np.array(features), np.zeros((len(features), 2))
  kept = np.array(exemplars), np.array(labels)
  return NearestMean().scores(*known, lambda: kept, seen)


def test_the_head_gives_the_logits_of_seen_classes():
  logits = np.array([[1.0, 3.0, 9.0], [4.0, 2.0, 9.0]])
  found = Head().scores(np.zeros((2, 1)), logits, lambda: 1 / 0, 2)
  assert found.tolist() == [[1.0, 3.0], [4.0, 2.0]]


def test_the_nearest_mean_by_hand():
  exemplars = [[2.0, 0.0], [0.0, 5.0], [0.0, 1.0]]
  features = [[9.0, 1.0], [1.0, 1.1], [-1.0, 0.5]]
  found = nme(features, exemplars, [0, 1, 1])
  assert found.argmax(-1).tolist() == [0, 1, 1]
  unit = np.array(features) / np.linalg.norm(features, axis=1)[:, None]
  np.testing.assert_allclose(found, unit, rtol=1e-6)  # The means are the axes.


def test_the_nearest_mean_averages_directions_not_lengths():
  """A long exemplar does not outweigh a short one of its class."""
  exemplars = [[100.0, 0.0], [0.0, 1.0], [0.6, 0.8]]
  # Class 0 points along (1, 1), class 1 along (0.6, 0.8).
  assert nme([[0.75, 0.7]], exemplars, [0, 0, 1]).argmax(-1).tolist() == [0]


def test_probabilities_are_the_softmax_of_logits_or_of_ten_times_cosines():
  found = np.log([[1.0, 3.0]])
  np.testing.assert_allclose(Head().probabilities(found), [[0.25, 0.75]])
  likely = NearestMean().probabilities(found / 10)
  np.testing.assert_allclose(likely, [[0.25, 0.75]])


def test_class_means_of_features_that_come_in_parts():
  one, two = np.array([[3.0, 4.0]]), np.array([[0.0, 2.0], [5.0, 0.0]])
  parts = [(one, np.array([1])), (two, np.array([1, 2]))]
  means = class_means(iter(parts), 4)
  np.testing.assert_allclose(
    means, [[0, 0], [0.3, 0.9], [1, 0], [0, 0]], rtol=1e-6
  )
