"""Maps of features: what they show, in one embedding for all that is compared."""

import numpy as np
import pytest
from support import report_fixture
from support.report_fixture import write_mapped as write

from mnemonics_jax.report import maps
from mnemonics_jax.runs.results import load_run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  root = tmp_path_factory.mktemp("maps")
  return [
    load_run(report_fixture.write(root / kind, exemplars=kind, learned=True))
    for kind in ("herding", "mnemonics")
  ]


@pytest.fixture
def calls(monkeypatch):
  """Replaces t-SNE by points that name their row."""
  seen = []

  def embed(features):
    seen.append(features)
    rows = np.arange(len(features), dtype=float)
    return np.stack([rows, -rows], axis=1)

  monkeypatch.setattr(maps, "embed", embed)
  return seen


def test_the_legend_says_how_well_classes_are_known(tmp_path, calls):
  run = write(tmp_path / "run", (2, 2), [1.0, 0.25, 0.5, 0.0])
  (drawing,) = maps.feature_map(run)
  (legend,) = drawing.figure.legends
  words = [text.get_text() for text in legend.get_texts()]
  assert words[1:4] == [
    "price $x_1 (phase 0, 25 %)",
    "cost $y^2$ & über… (phase 1, 50 %)",
    "class 3 (phase 1, 0 %)",
  ]


def test_one_embedding_holds_the_points_of_all_panels(runs, calls):
  (drawing,) = maps.feature_map(runs[0])
  (features,) = calls
  # 3, 4 and 5 classes with 4 test images and one exemplar each.
  assert len(features) == len(drawing.rows) == 15 + 20 + 25
  rows = [dict(zip(drawing.header, r, strict=True)) for r in drawing.rows]
  assert [float(row["x"]) for row in rows] == list(range(60))
  assert {row["phase"] for row in rows[:15]} == {0}
  assert {row["phase"] for row in rows[35:]} == {2}
  assert sum(row["kind"] == "exemplar" for row in rows) == 12
  # An exemplar's features are three times its class's axis.
  for row, feature in zip(rows, features, strict=True):
    if row["kind"] == "exemplar":
      np.testing.assert_array_equal(feature, 3 * np.eye(8)[row["class_index"]])
  assert rows[0]["class"] == report_fixture.SCRIPT_NAME


def test_compared_runs_share_the_embedding_and_have_a_row_each(runs, calls):
  (drawing,) = maps.comparison_map(runs)
  (features,) = calls
  assert len(features) == len(drawing.rows) == 2 * 60
  assert [row[0] for row in drawing.rows] == ["herding"] * 60 + [
    "mnemonics"
  ] * 60
  shown = [axes for axes in drawing.figure.axes if axes.get_visible()]
  assert [axes.get_ylabel() for axes in shown] == [
    *("herding", "", ""),
    *("mnemonics", "", ""),
  ]
  assert [axes.get_title() for axes in shown[:3]] == [
    "after phase 0: 3 of 3 classes",
    "after phase 1: 4 of 4 classes",
    "after phase 2: 5 of 5 classes",
  ]
  assert len({(axes.get_xlim(), axes.get_ylim()) for axes in shown}) == 1
  # Stars of the last panel lie where the embedding put them.
  stars = [c.get_offsets() for c in shown[5].collections if c.get_sizes() > 50]
  found = sorted(float(x) for offsets in stars for x, _ in offsets)
  assert found == [99 + 5 * label for label in range(5)]


def test_only_like_runs_are_compared(runs, tmp_path, calls):
  other = report_fixture.write(tmp_path / "a", groups=(4, 1), learned=True)
  without = report_fixture.write(tmp_path / "b")
  others = [load_run(other), load_run(without)]
  assert maps.mapped_runs([*runs, *others]) == runs
  assert not [*maps.comparison_map([runs[0], *others])]
  assert not [*maps.feature_map(others[1])]


def test_embedding_repeats_itself_and_keeps_classes_together(runs):
  found = maps.panels(runs[0], range(5))
  features = np.concatenate([panel.features for panel in found])
  labels = np.concatenate([panel.labels for panel in found])
  points = maps.embed(features)
  assert points.shape == (60, 2)
  np.testing.assert_array_equal(points, maps.embed(features))
  gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)
  np.fill_diagonal(gaps, np.inf)
  assert (labels[gaps.argmin(axis=1)] == labels).all()


def test_embedding_looks_at_directions_only(runs):
  features = maps.panels(runs[0], range(5))[0].features.astype(np.float64)
  # Powers of two change no digit of what is left after normalising.
  scales = 2.0 ** (np.arange(len(features)) % 4)
  np.testing.assert_array_equal(
    maps.embed(features), maps.embed(features * scales[:, None])
  )


def test_other_classes_are_a_grey_cross_each(tmp_path, calls):
  # The worst are 0, 1 and 2; 3 and 4 are of the first phase, 7 and 8 of the last.
  run = write(tmp_path / "run", (6, 1, 2), np.linspace(0.1, 0.9, 9))
  (drawing,) = maps.feature_map(run)
  rows = [dict(zip(drawing.header, row, strict=True)) for row in drawing.rows]
  found = {
    phase: [
      r["class_index"]
      for r in rows
      if (r["phase"], r["kind"]) == (phase, "other")
    ]
    for phase in range(3)
  }
  assert found == {0: [5], 1: [5, 6], 2: [5, 6]}
  (features,) = calls  # They are part of the one embedding.
  assert len(features) == len(rows)
  _, second, _ = (axes for axes in drawing.figure.axes if axes.get_visible())
  assert second.get_title() == "after phase 1: 5 of 7 classes"
  crosses = second.collections[0]
  x, y = np.transpose(crosses.get_offsets())
  drawn = [
    float(r["x"]) for r in rows if (r["phase"], r["kind"]) == (1, "other")
  ]
  assert x.tolist() == drawn and (y == -x).all()
  red, green, blue, _ = crosses.get_edgecolor()[0]
  assert red == green == blue
  (legend,) = drawing.figure.legends
  words = [text.get_text() for text in legend.get_texts()]
  assert words[-1] == "another class"


def test_runs_of_few_classes_have_no_crosses(runs, calls):
  (drawing,) = maps.feature_map(runs[0])
  (legend,) = drawing.figure.legends
  assert legend.get_texts()[-1].get_text() == "exemplar"


def test_the_map_tells_how_well_clouds_are_apart(runs, calls, monkeypatch):
  def embed(features):
    """Classes at 0, 1, 4, 9 and 16, but one image of the last at 0."""
    rows = features.argmax(axis=1).astype(float) ** 2
    rows[np.flatnonzero(rows == 16)[0]] = 0.0
    return np.stack([rows, rows], axis=1)

  monkeypatch.setattr(maps, "embed", embed)
  (drawing,) = maps.feature_map(runs[0])
  # 19 of 20 test images, 3 of the 4 of the last class.
  assert drawing.finding == (
    "After phase 2, 95.0\u00a0% of the dots lie nearest to the middle of their own"
    " cloud, fewest of class 4, 75.0\u00a0%."
  )
  (drawing,) = maps.comparison_map(runs)
  assert drawing.finding == (
    "After phase 2, dots nearest to the middle of their own cloud:"
    " 95.0\u00a0% (herding) and 100\u00a0% (mnemonics)."
  )


def test_equal_features_have_no_map(runs, monkeypatch, calls):
  panel = maps.panels(runs[0], range(5))[0]
  same = panel._replace(features=np.ones_like(panel.features))
  monkeypatch.setattr(maps, "panels", lambda *_: [same])
  assert not [*maps.feature_map(runs[0])]
  assert not calls


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
  panel = maps.Panel(0, features, labels, exemplar, np.zeros(200, bool))
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
  panel = maps.Panel(0, features, labels, nothing, other)
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
