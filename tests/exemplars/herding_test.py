"""Herding against brute force."""

import numpy as np

from mnemonics_jax.exemplars import choose


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
    assert choose.herding(features, 7).tolist() == _greedy(features, 7)


def test_herding_minimises_the_distance_of_means_greedily():
  # For unit vectors argmax w·x is argmin ‖mean − (sum + x)/(k + 1)‖.
  x = np.random.default_rng(1).normal(size=(30, 4))
  x /= np.linalg.norm(x, axis=1, keepdims=True)
  picks = choose.herding(x, 10)
  for k in range(10):
    chosen = x[picks[:k]].sum(0)
    gaps = np.linalg.norm(x.mean(0) - (chosen + x) / (k + 1), axis=1)
    gaps[picks[:k]] = np.inf
    assert picks[k] == gaps.argmin()


def test_herding_is_prefix_stable_and_never_repeats():
  features = np.random.default_rng(2).normal(size=(20, 3))
  long = choose.herding(features, 20)
  assert sorted(long) == list(range(20))
  np.testing.assert_array_equal(choose.herding(features, 6), long[:6])


def test_herding_survives_zero_features_and_large_counts():
  assert sorted(choose.herding(np.zeros((3, 2)), 5)) == [0, 1, 2]
