"""What a map shows: which phases, classes and images."""

import numpy as np
from support.mapped_run import write

from mnemonics_jax.report import maps


def test_panels_are_the_first_phase_one_between_and_the_last(tmp_path):
  def phases(*groups):
    run = write(tmp_path / "_".join(map(str, groups)), groups)
    return maps.mapped_phases(run)

  assert phases(3, 1, 1) == [0, 1, 2]
  assert phases(5, 1, 1, 1, 1, 1) == [0, 3, 5]
  assert phases(4, 1) == [0, 1]
  assert phases(5) == [0]
  # A map has three classes at least.
  assert phases(1, 1, 1, 1) == [2, 3]
  assert phases(1, 1) == []


def test_colours_are_for_the_worst_the_first_and_the_last_classes(tmp_path):
  known = np.full(12, 0.5)
  known[[3, 4, 8]] = 0.1, 0.0, 0.2
  run = write(tmp_path / "run", (5, 3, 4), known)
  assert maps.colored_classes([run]) == [0, 1, 3, 4, 8, 9, 10]
  # A phase may have too few others.
  known = np.linspace(0.1, 0.9, 12)
  run = write(tmp_path / "first", (2, 8, 2), known)
  assert maps.colored_classes([run]) == [0, 1, 2, 3, 4, 10, 11]
  # Of few classes, all are shown.
  run = write(tmp_path / "few", (3, 2), known[:5])
  assert maps.colored_classes([run]) == [0, 1, 2, 3, 4]


def test_runs_that_are_compared_share_their_colours(tmp_path):
  one, two = np.full(12, 0.5), np.full(12, 0.5)
  one[[5, 6]], two[[5, 7]] = (0.0, 0.3), (0.4, 0.0)
  runs = [
    write(tmp_path / name, (4, 4, 4), known)
    for name, known in (("one", one), ("two", two))
  ]
  # The means are 0.2, 0.25 and 0.4 for 5, 7 and 6.
  assert maps.colored_classes(runs) == [0, 1, 5, 6, 7, 8, 9]


def test_thinning_keeps_classes_and_exemplars():
  labels = np.repeat([0, 1], 100)
  exemplar = np.tile(np.arange(100) >= 70, 2)
  features = np.arange(200.0)[:, None]
  panel = maps.Panel(0, 0, features, labels, exemplar, np.zeros(200, bool))
  (thin,) = maps.thin([panel], 60)
  assert np.bincount(thin.labels).tolist() == [30, 30]
  assert np.bincount(thin.labels[thin.exemplar]).tolist() == [10, 10]
  # The first exemplars; test images from the first to the last.
  kept = thin.features[:, 0][(thin.labels == 1) & thin.exemplar]
  assert kept.tolist() == list(range(170, 180))
  real = thin.features[:, 0][(thin.labels == 0) & ~thin.exemplar]
  assert (real[0], real[-1], len(np.unique(real))) == (0, 69, 20)
  (whole,) = maps.thin([panel], 10_000)
  assert sorted(whole.features[:, 0]) == list(range(200))


def test_thinning_keeps_a_point_of_every_other_class():
  labels = np.concatenate([np.repeat([0, 1], 100), np.arange(2, 90)])
  nothing, other = np.zeros(288, bool), labels > 1
  features = np.arange(288.0)[:, None]
  panel = maps.Panel(0, 0, features, labels, nothing, other)
  (thin,) = maps.thin([panel], 60)
  assert thin.classes.tolist() == [0, 1]
  assert np.bincount(thin.labels).tolist() == [30, 30, *[1] * 88]
  assert thin.features[thin.other, 0].tolist() == [*range(200, 288)]


def test_of_other_classes_the_mean_direction_is_shown(tmp_path):
  run = write(tmp_path / "run", (3, 1))
  # Lengths do not count: (1, 0) and (0, 1) have the mean (1/2, 1/2).
  features = np.array([[9.0, 9.0], [2.0, 0.0], [0.0, 4.0], [0.0, 3.0]])
  arrays = {"test": features, "test_labels": np.array([0, 1, 1, 3])}
  arrays |= {"exemplars": features[:0], "exemplars_labels": np.zeros(0, int)}
  file = run.path / "seed_0" / "phase_01.npz"
  np.savez(file, **{f"features/{k}": v for k, v in arrays.items()})
  last = maps.panels(run, [0])[-1]
  assert last.labels[last.other].tolist() == [1, 3]
  np.testing.assert_array_equal(
    last.features[last.other], [[0.5, 0.5], [0.0, 1.0]]
  )
  # A thousand classes are too many for a map.
  arrays |= {"test": np.ones((1000, 2)), "test_labels": np.arange(1000)}
  np.savez(file, **{f"features/{k}": v for k, v in arrays.items()})
  last = maps.panels(run, [0])[-1]
  kept = last.labels[last.other]
  assert (len(kept), kept[0], kept[-1]) == (150, 1, 999)
  # Earlier versions kept the means, and no more of other classes.
  arrays |= {"test": features[:3], "test_labels": np.arange(3)}
  arrays |= {"others": features[3:], "others_labels": np.array([7])}
  np.savez(file, **{f"features/{k}": v for k, v in arrays.items()})
  last = maps.panels(run, [0, 1, 2])[-1]
  assert last.labels.tolist() == [0, 1, 2, 7]
  assert last.other.tolist() == [False] * 3 + [True]
