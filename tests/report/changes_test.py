"""Changed exemplars: sheets are grey where nothing moved, distances are told."""

import csv
import dataclasses
import html
import json

import numpy as np
import pytest
from support import report_fixture

from mnemonics_jax import report
from mnemonics_jax.report import lines, page, pictures
from mnemonics_jax.runs.results import load_run


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
  path = tmp_path_factory.mktemp("changes") / "run"
  return report_fixture.write(path, learned=True)


def test_difference_is_signed_and_grey_where_nothing_changed():
  before = np.array([0, 255, 7, 100, 100], np.uint8)
  after = np.array([0, 255, 7, 102, 97], np.uint8)
  found = pictures.difference(before, after, 20)
  assert found.tolist() == [128, 128, 128, 168, 68]
  assert pictures.difference(before, after, 100).tolist()[3:] == [255, 0]


@pytest.mark.parametrize(
  ("moves", "gain"),
  [
    ([2] * 100, 50),
    ([0] * 200, 1),
    ([0] * 199 + [1], 100),  # Too few for a percentile: the largest counts.
    ([4] * 199 + [200], 20),  # One in 200 may be cut off.
    ([200] * 100, 1),
  ],
)
def test_amplification_fits_the_range(moves, gain):
  before = np.zeros((len(moves), 1, 1, 1), np.uint8)
  after = np.array(moves, np.uint8).reshape(before.shape)
  change = pictures.Change(0, np.zeros(len(moves), int), before, after)
  assert pictures.amplification([change]) == gain


def test_sheets_show_before_after_and_the_change(workdir):
  drawings = {d.name: d for d in pictures.change_sheets(load_run(workdir))}
  assert list(drawings) == [
    *(f"exemplars_learned_0{phase}" for phase in range(3)),
    *(f"exemplars_adjusted_0{phase}" for phase in (1, 2)),
  ]
  drawing = drawings["exemplars_adjusted_01"]
  (axes,) = drawing.figure.axes
  words = [text.get_text() for text in axes.texts]
  assert words[:4] == ["phase 1", "before", "after", "×50"]
  assert words[-3:] == ["<script>alert(1…", "price $x_1", "cost $y^2$ & üb…"]
  pixels = np.asarray(axes.images[0].get_array())
  count = lambda *color: int((pixels == [*color, 255]).all(-1).sum())
  # Six images of 32 by 32 pixels: a quarter gained 2 levels of red.
  assert count(128, 128, 128) == 6 * 32 * 32 * 3 // 4
  assert count(228, 128, 128) == 6 * 32 * 32 // 4
  with np.load(workdir / "seed_0" / "phase_01.npz") as file:
    stored = file["changed/adjust/before"], file["changed/adjust/after"]
  # The first class's first image, four pixels for each of its own.
  opaque = np.argwhere(pixels[..., 3] == 255).min(axis=0)
  for place, images in enumerate(stored):
    y, x = opaque[0], opaque[1] + place * 34
    shown = pixels[y : y + 32 : 4, x : x + 32 : 4, :3]
    np.testing.assert_array_equal(shown, images[0])
  # 2 levels in a quarter of one of three channels.
  assert drawing.rows[0] == [*(0, report_fixture.SCRIPT_NAME, 0, 2 / 12, 2, 50)]


def test_distances_are_the_history(workdir):
  (drawing,) = lines.exemplar_distances(load_run(workdir))
  rows = [dict(zip(drawing.header, row, strict=True)) for row in drawing.rows]
  learned = [r for r in rows if r["stage"] == "exemplars"]
  adjusted = [r for r in rows if r["stage"] == "adjust"]
  assert len(learned) == 2 * 3 * 3  # Seeds, phases, epochs.
  assert len(adjusted) == 2 * 2 * 6
  for row in rows:
    length = 3 if row["stage"] == "exemplars" else 6
    truth = report_fixture.history(row["phase"], row["seed"], length)
    place = 3 * row["part"] + row["meta_epoch"] - 1
    for name in ("displacement", "cosine", "euclidean"):
      assert float(row[name]) == pytest.approx(truth[name][place], rel=1e-5)
  assert {(r["part"], r["meta_epoch"]) for r in adjusted} == {
    (part, epoch) for part in (0, 1) for epoch in (1, 2, 3)
  }


def test_distances_draw_the_mean_of_the_seeds_from_zero(workdir):
  (drawing,) = lines.exemplar_distances(load_run(workdir))
  learn, *_, adjust = drawing.figure.axes[:4]
  # Pixels moved by phase + 0.1 seed + 0.01 epoch; two seeds.
  np.testing.assert_allclose(
    learn.lines[1].get_ydata(), [0, 1.06, 1.07, 1.08], rtol=1e-6
  )
  first, second = adjust.lines[:2]
  assert list(first.get_xdata()) == [0, 1, 2, 3]
  assert list(second.get_xdata()) == [3, 4, 5, 6]
  np.testing.assert_allclose(
    second.get_ydata(), [0, 1.09, 1.10, 1.11], rtol=1e-6
  )


def test_an_adjustment_of_three_parts_is_drawn_in_three(workdir):
  run = load_run(workdir)
  settings = {"settings": run.config.get("settings", {}) | {"adjust_parts": 3}}
  run = dataclasses.replace(run, config=run.config | settings)
  (drawing,) = lines.exemplar_distances(run)
  adjust = drawing.figure.axes[3]
  first, second, third = (list(x.get_xdata()) for x in adjust.lines[:3])
  assert (first, second, third) == ([0, 1, 2], [2, 3, 4], [4, 5, 6])
  parts = {row[3] for row in drawing.rows if row[0] == "adjust"}
  assert parts == {0, 1, 2}


@pytest.fixture
def few_figures(monkeypatch):
  """Draws nothing else, to save time."""
  mine = lines.exemplar_distances, pictures.change_sheets
  monkeypatch.setattr(page, "DRAWERS", mine)


def test_page_shows_them_with_their_numbers(workdir, few_figures):
  text = report.build([workdir]).read_text(encoding="utf-8")
  assert "Learning exemplars</h2>" in text
  assert "50 times amplified" in text
  assert 'href="figures/exemplars_adjusted_02.csv"' in text
  assert report_fixture.SCRIPT_NAME not in text
  path = workdir / "figures" / "exemplars_learned_00.csv"
  with open(path, encoding="utf-8") as file:
    first = next(csv.DictReader(file))
  assert first["class"] == report_fixture.SCRIPT_NAME
  assert html.escape(report_fixture.SCRIPT_NAME) in text


def test_many_phases_are_thinned_on_the_page(tmp_path, few_figures):
  path = report_fixture.write(
    tmp_path / "run", groups=[1] * 9, seeds=(0,), size=2, learned=True
  )
  text = report.build([path]).read_text(encoding="utf-8")
  assert "6 of 9 phases" in text
  assert "exemplars_learned_00.csv" in text
  assert "exemplars_learned_01.csv" not in text
  assert "exemplars_learned_08.csv" in text
  assert (path / "figures" / "exemplars_learned_01.png").exists()


def test_nothing_is_shown_of_runs_that_kept_nothing(tmp_path, few_figures):
  path = report_fixture.write(tmp_path / "run", seeds=(0,))
  results = json.loads((path / "results.json").read_text())
  for phase in results["runs"][0]["phases"]:
    phase["diagnostics"] = {"exemplars": {"mean_change": 1.0}}
  (path / "results.json").write_text(json.dumps(results))
  run = load_run(path)
  assert not [*pictures.change_sheets(run), *lines.exemplar_distances(run)]
  text = report.build([path]).read_text(encoding="utf-8")
  assert "Learning exemplars" not in text
