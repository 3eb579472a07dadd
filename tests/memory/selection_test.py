"""Herding against brute force; random choice and rows of several classes."""

import numpy as np

from mnemonics_jax.memory import selection


def _greedy(features, count):
  """Herding from its definition: keep the running sum near count · mean."""
  x = features / np.linalg.norm(features, axis=1, keepdims=True)
  mean, picks = x.mean(0), []
  for step in range(count):
    scores = {}
    for i in range(len(x)):
      if i not in picks:
        weight = mean.copy()
        for p in picks:
          weight = weight + mean - x[p]
        scores[i] = weight @ x[i]
    picks.append(max(scores, key=scores.get))
    assert len(picks) == step + 1
  return picks


def test_herding_equals_brute_force():
  rng = np.random.default_rng(0)
  for _ in range(10):
    features = rng.normal(size=(12, 5))
    assert selection.herding(features, 7).tolist() == _greedy(features, 7)


def test_herding_minimises_the_distance_of_means_greedily():
  # For unit vectors argmax w·x is argmin ‖mean − (sum + x)/(k + 1)‖.
  x = np.random.default_rng(1).normal(size=(30, 4))
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  picks = selection.herding(x, 10)
  for k in range(10):
    chosen = x[picks[:k]].sum(0)
    gaps = np.linalg.norm(x.mean(0) - (chosen + x) / (k + 1), axis=1)
    gaps[picks[:k]] = np.inf
    assert picks[k] == gaps.argmin()


def test_herding_is_prefix_stable_and_never_repeats():
  features = np.random.default_rng(2).normal(size=(20, 3))
  long = selection.herding(features, 20)
  assert sorted(long) == list(range(20))
  np.testing.assert_array_equal(selection.herding(features, 6), long[:6])


def test_herding_survives_zero_features_and_large_counts():
  assert sorted(selection.herding(np.zeros((3, 2)), 5)) == [0, 1, 2]


def test_random_has_no_repeats():
  picks = selection.random(np.random.default_rng(0), 10, 6)
  assert len(set(picks.tolist())) == 6 and max(picks) < 10


def test_random_depends_on_the_draw():
  draws = [
    tuple(selection.random(np.random.default_rng(seed), 10, 6))
    for seed in range(20)
  ]
  assert len(set(draws)) > 15
  assert {image for draw in draws for image in draw} == set(range(10))


def test_rows_of_each_class_are_its_own():
  # Classes 1 and 3 lie at rows 1, 3, 5... and 0, 2, 4...
  labels = np.where(np.arange(20) % 2, 1, 3)
  features = np.random.default_rng(3).normal(size=(20, 4))
  for strategy in ("random", "herding"):
    picks = selection.select(
      np.random.default_rng(0), features, labels, [1, 3],
      strategy=strategy, allowance=4,
    )  # fmt: skip
    assert labels[picks].tolist() == [1] * 4 + [3] * 4
    assert len(set(picks.tolist())) == 8
  ones = np.flatnonzero(labels == 1)
  assert picks[:4].tolist() == ones[_greedy(features[ones], 4)].tolist()
