"""Maps of features: one embedding for everything that is compared."""

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax.report import maps
from mnemonics_jax.runs.finished import load_run


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


def test_panels_are_the_phases_with_three_five_seven_classes(tmp_path, runs):
  def phases(groups):
    path = tmp_path / "_".join(map(str, groups))
    path = report_fixture.write(path, groups=groups, seeds=(0,), learned=True)
    return [panel.phase for panel in maps.panels(load_run(path))]

  assert [panel.phase for panel in maps.panels(runs[0])] == [0, 2]
  # Seen are min(seen, 3 + 2 phase, 7) classes of the made-up run.
  assert phases((5, 2, 2)) == [0, 1, 2]
  assert phases((4, 1, 1, 1, 1)) == [0, 1, 3]
  assert phases((1, 1)) == []


def test_one_embedding_holds_the_points_of_all_panels(runs, calls):
  (drawing,) = maps.feature_map(runs[0])
  (features,) = calls
  # 3 and 5 classes with 4 test images and one exemplar each.
  assert len(features) == len(drawing.rows) == 15 + 25
  rows = [dict(zip(drawing.header, r, strict=True)) for r in drawing.rows]
  assert [float(row["x"]) for row in rows] == list(range(40))
  assert {row["phase"] for row in rows[:15]} == {0}
  assert {row["phase"] for row in rows[15:]} == {2}
  assert sum(row["kind"] == "exemplar" for row in rows) == 8
  # An exemplar's features are three times its class's axis.
  for row, feature in zip(rows, features, strict=True):
    if row["kind"] == "exemplar":
      np.testing.assert_array_equal(feature, 3 * np.eye(8)[row["class_index"]])
  assert rows[0]["class"] == report_fixture.SCRIPT_NAME


def test_compared_runs_share_the_embedding_and_have_a_row_each(runs, calls):
  (drawing,) = maps.comparison_map(runs)
  (features,) = calls
  assert len(features) == len(drawing.rows) == 2 * 40
  assert [row[0] for row in drawing.rows] == ["herding"] * 40 + [
    "mnemonics"
  ] * 40
  shown = [axes for axes in drawing.figure.axes if axes.get_visible()]
  assert [axes.get_ylabel() for axes in shown] == [
    *("herding", ""),
    *("mnemonics", ""),
  ]
  assert [axes.get_title() for axes in shown[:2]] == [
    "after phase 0: 3 of 3 classes",
    "after phase 2: 5 of 5 classes",
  ]
  assert len({(axes.get_xlim(), axes.get_ylim()) for axes in shown}) == 1
  # Stars of the last panel lie where the embedding put them.
  stars = [c.get_offsets() for c in shown[3].collections if c.get_sizes() > 50]
  found = sorted(float(x) for offsets in stars for x, _ in offsets)
  assert found == [59 + 5 * label for label in range(5)]


def test_only_like_runs_are_compared(runs, tmp_path, calls):
  other = report_fixture.write(tmp_path / "a", groups=(4, 1), learned=True)
  without = report_fixture.write(tmp_path / "b")
  others = [load_run(other), load_run(without)]
  assert maps.mapped_runs([*runs, *others]) == runs
  assert not [*maps.comparison_map([runs[0], *others])]
  assert not [*maps.feature_map(others[1])]


def test_embedding_repeats_itself_and_keeps_classes_together(runs):
  panels = maps.panels(runs[0])
  features = np.concatenate([panel.features for panel in panels])
  labels = np.concatenate([panel.labels for panel in panels])
  points = maps.embed(features)
  assert points.shape == (40, 2)
  np.testing.assert_array_equal(points, maps.embed(features))
  gaps = np.linalg.norm(points[:, None] - points[None], axis=-1)
  np.fill_diagonal(gaps, np.inf)
  assert (labels[gaps.argmin(axis=1)] == labels).all()


def test_embedding_looks_at_directions_only(runs):
  features = maps.panels(runs[0])[0].features.astype(np.float64)
  # Powers of two change no digit of what is left after normalising.
  scales = 2.0 ** (np.arange(len(features)) % 4)
  np.testing.assert_array_equal(
    maps.embed(features), maps.embed(features * scales[:, None])
  )


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


def test_other_classes_are_a_grey_cross_each(tmp_path, calls):
  # Phase 0 maps 3 of 6 classes, phase 1 5 of 8, phase 2 all 7 of 9.
  path = report_fixture.write(
    tmp_path / "run", groups=(6, 2, 1), seeds=(0,), learned=True
  )
  run = load_run(path)
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
  assert found == {0: [3, 4, 5], 1: [5, 6, 7], 2: [7, 8]}
  (features,) = calls  # They are part of the one embedding.
  assert len(features) == len(rows)
  first, *_ = (axes for axes in drawing.figure.axes if axes.get_visible())
  assert first.get_title() == "after phase 0: 3 of 6 classes"
  crosses = first.collections[0]
  x, y = np.transpose(crosses.get_offsets())
  drawn = [
    float(r["x"]) for r in rows if (r["phase"], r["kind"]) == (0, "other")
  ]
  assert x.tolist() == drawn and (y == -x).all()
  red, green, blue, _ = crosses.get_edgecolor()[0]
  assert red == green == blue
  (legend,) = drawing.figure.legends
  words = [text.get_text() for text in legend.get_texts()]
  assert words[-1] == "another class"


def test_runs_without_other_classes_have_a_map(runs, calls):
  (drawing,) = maps.feature_map(runs[0])
  (legend,) = drawing.figure.legends
  assert legend.get_texts()[-1].get_text() == "exemplar"


def test_equal_features_have_no_map(runs, monkeypatch, calls):
  panel = maps.panels(runs[0])[0]
  same = panel._replace(features=np.ones_like(panel.features))
  monkeypatch.setattr(maps, "panels", lambda run, row=0: [same])
  assert not [*maps.feature_map(runs[0])]
  assert not calls
