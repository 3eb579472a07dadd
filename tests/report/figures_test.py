"""Every figure: a picture with its finding, and the numbers it shows beside it."""

import csv
import itertools
import re

import matplotlib
from matplotlib.figure import Figure
import numpy as np
from PIL import Image
import pytest
from support import report_fixture
from support.report_fixture import write_mapped

from mnemonics_jax import report
from mnemonics_jax.report import draw, lines, maps, page, pictures
from mnemonics_jax.runs.results import load_run

# What figures are of: two seeds, one with more classes than colours, one that
# was not fine-tuned, one that has saved no arrays and no epochs.
_RUNS = {
  "seeds": dict(learned=True),
  "mapped": dict(),
  "plain": dict(seeds=(0,), finetune=False, learned=True),
  "bare": dict(seeds=(0,)),
}
_NAMES = {
  "phase_curve",
  "moments",
  "accuracy_matrix_head",
  "accuracy_matrix_nme",
  "confusion_head",
  "confusion_nme",
  "training_curves",
  "exemplar_distances",
  "feature_map",
  "memory",
}
_COMPARED = {
  "comparison_head",
  "comparison_nme",
  "comparison_map",
  "comparison_distances",
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
  root = tmp_path_factory.mktemp("figures")
  found = {}
  for name, options in _RUNS.items():
    if name == "mapped":
      found[name] = write_mapped(root / name, (6, 1, 2), np.linspace(0.1, 1, 9))
      continue
    path = report_fixture.write(root / name, **options)
    if name == "bare":
      (path / "metrics.jsonl").unlink()
      for file in path.glob("seed_*/*.npz"):
        file.unlink()
    found[name] = load_run(path)
  return found


@pytest.fixture(scope="module")
def drawn(runs, tmp_path_factory):
  """All figures of each run, and those that compare two, with their files."""
  root, found = tmp_path_factory.mktemp("drawn"), {}
  pairs = [
    (drawer, name, run) for name, run in runs.items() for drawer in page.DRAWERS
  ]
  both = [runs["seeds"], runs["plain"]]
  pairs += [(drawer, "compared", both) for drawer in page.COMPARISONS]
  with matplotlib.rc_context(draw.STYLE):
    for drawer, name, of in pairs:
      for drawing in drawer(of):
        path = draw.save(drawing, root / name)
        found.setdefault(name, []).append((drawing, path))
  return found


def read(path):
  with path.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
    return list(csv.reader(file))


def test_there_is_a_figure_for_all_that_was_saved(drawn):
  names = {
    run: {d.name for d, _ in found if not d.name.startswith("exemplars_")}
    for run, found in drawn.items()
  }
  assert names["seeds"] == names["mapped"] == names["plain"] == _NAMES
  assert names["compared"] == _COMPARED
  assert names["bare"] == {
    name for name in _NAMES if name.startswith(("phase", "moments", "accuracy"))
  }
  sheets = [
    d.name for d, _ in drawn["seeds"] if d.name.startswith("exemplars_")
  ]
  assert sheets == [
    *(f"exemplars_learned_0{phase}" for phase in range(3)),
    *(f"exemplars_adjusted_0{phase}" for phase in (1, 2)),
  ]


@pytest.mark.parametrize("run", [*_RUNS, "compared"])
def test_every_figure_is_a_picture_with_its_numbers_and_finding(drawn, run):
  for drawing, path in drawn[run]:
    assert path.name == f"{drawing.name}.png"
    with Image.open(path) as picture:
      assert picture.format == "PNG" and min(picture.size) > 100
      low, high = picture.convert("L").getextrema()
    assert low < 128 < high
    header, *rows = read(path)
    assert header == list(drawing.header) and rows
    assert rows == [[draw.cell(value) for value in row] for row in drawing.rows]
    assert draw.finding(path) == drawing.finding
    assert re.fullmatch(r"[A-Z0-9].* .*\.", drawing.finding)
  files = {path.name for path in drawn[run][0][1].parent.iterdir()}
  stems = [drawing.name for drawing, _ in drawn[run]]
  both = {f"{s}.{kind}" for s in stems for kind in ("png", "csv")}
  assert files == both and len(set(stems)) == len(stems)  # No drafts are left.


def points(figure):
  """All numbers that lines, dots and cells of a figure stand for."""
  for axes in figure.axes:
    if not axes.get_visible() or axes.get_label() == "<colorbar>":
      continue
    for line in axes.lines:
      yield from line.get_ydata()
    for image in axes.images:
      yield from np.ma.filled(image.get_array(), np.nan).ravel()
    for dots in axes.collections:
      if isinstance(dots, matplotlib.collections.PathCollection):
        yield from np.ravel(dots.get_offsets())


@pytest.mark.parametrize("run", [*_RUNS, "compared"])
def test_what_is_drawn_is_among_the_numbers(drawn, run):
  for drawing, path in drawn[run]:
    # Sheets are photographs, counts are drawn as shares; the mean of seeds, and
    # the zero at which distances begin, have tests of their own.
    if drawing.exact or drawing.name.startswith("confusion"):
      continue
    if drawing.name == "exemplar_distances" and run == "seeds":
      continue
    told = {"0", ""} | set(itertools.chain(*read(path)[1:]))
    shown = {
      draw.cell(float(p)) for p in points(drawing.figure) if np.isfinite(p)
    }
    assert shown and shown <= told, (drawing.name, shown - told)


def test_numbers_are_those_of_the_run(drawn):
  (path,) = (path for d, path in drawn["seeds"] if d.name == "training_curves")
  header, *rows = read(path)
  found = [dict(zip(header, row, strict=True)) for row in rows]
  # 3 phases with 3 epochs of training and 3 of fine-tune.
  found = [row for row in found if row["seed"] == "0"]
  assert [int(row["position"]) for row in found] == list(range(1, 19))
  assert found[7]["loss"] == f"{2.0 / (1 + 1 + 0.2):.6g}"
  (memory,) = (d for d, _ in drawn["seeds"] if d.name == "memory")
  assert [row[2:] for row in memory.rows] == [
    [phase, 4, 4] for phase in (0, 0, 0, 1, 2)
  ]


def test_every_picture_says_what_it_shows(drawn):
  shows = {drawing.name: drawing.finding for drawing, _ in drawn["seeds"]}
  assert shows["phase_curve"] == (
    "From 3 to 5 classes, head falls from 89.0\u00a0% to 69.0\u00a0% and nme falls"
    " from 84.0\u00a0% to 64.0\u00a0%."
  )
  assert shows["accuracy_matrix_head"] == (
    "On the classes of phase 0, head has 89.0\u00a0% when they are new and"
    " 67.0\u00a0% at the end."
  )
  # 11 of 40 images of each class are taken for the next one.
  assert shows["confusion_head"] == (
    f"Most frequent confusion: 28\u00a0% of {report_fixture.SCRIPT_NAME[:17]}… are"
    " taken for price $x_1."
  )
  assert shows["training_curves"] == (
    "Training of phase 2 ends with a loss of 0.588 and 83.3\u00a0% of the training"
    " images right."
  )
  assert shows["moments"].startswith(
    "After the last phase head has 67.0\u00a0% on old classes and 72.0\u00a0% on new"
    " ones (on old ones 63.0\u00a0% before the fine-tune) and nme has"
  )
  assert shows["memory"] == "20 exemplars of 5 classes."


def test_many_classes_and_phases(tmp_path):
  run = load_run(
    report_fixture.write(
      tmp_path / "run", groups=(50, *[2] * 25), seeds=(0,), size=32, slots=20
    )
  )
  (memory,) = pictures.memory_sheet(run)
  assert [row[-1] for row in memory.rows] == [10] * 100
  for matrices in (pictures.accuracy_matrices, pictures.confusion_matrices):
    for matrix in matrices(run):
      assert len(matrix.figure.axes[0].get_xticks()) <= 18
      assert not matrix.figure.axes[0].texts
  (head, _) = pictures.accuracy_matrices(run)
  assert len(head.rows) == 26 * 27 // 2
  (curves,) = lines.training_curves(run)
  numbers = [t.get_text() for t in curves.figure.axes[0].texts]
  assert numbers == ["phase 0", *(f"{phase}" for phase in range(2, 26, 2))]


@pytest.mark.parametrize(
  "value, cell",
  [
    (None, ""),
    (0.0, "0"),
    (12.3456789, "12.3457"),
    (1e-9, "1e-09"),
    (79.0, "79"),
    (1234567, "1234567"),
    ("a, b", "a, b"),
  ],
)
def test_cells_are_short_and_exact_to_six_digits(value, cell):
  assert draw.cell(value) == cell


def test_plots_lose_nothing_to_the_eye_and_exemplars_nothing_at_all(tmp_path):
  # 128 by 128 pixels of as many colours, a pixel of the picture each.
  noise = np.random.default_rng(0).integers(0, 256, (128, 128, 3), np.uint8)
  sizes = {}
  for exact in (True, False):
    figure = Figure(figsize=(1.28, 1.28), dpi=100)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_axis_off()
    axes.imshow(noise, interpolation="nearest")
    item = draw.Drawing("noise", figure, [], [], "Noise: ± “1”.", exact)
    path = draw.save(item, tmp_path / "new" / "figures")
    sizes[exact] = path.stat().st_size
    assert draw.finding(path) == "Noise: ± “1”."
    with Image.open(path) as picture:
      whole = np.asarray(picture.convert("RGB")).astype(int)
    inner = whole[8:-8, 8:-8][:128, :128]
    assert (np.abs(inner - noise[: len(inner)]) == 0).all() == exact
  assert sizes[False] < sizes[True] / 2


def test_colours_and_markers_are_told_apart():
  assert len(set(draw.COLORS)) == len(draw.COLORS)
  assert len(set(draw.MARKERS)) == len(draw.MARKERS)
  assert not draw.STYLE["text.parse_math"]  # "$" in a name is a dollar.


def test_figures_of_a_run_are_in_its_directory(runs, monkeypatch):
  monkeypatch.setattr(page, "DRAWERS", (lines.phase_curve,))
  run = runs["bare"]
  expected = [run.path / "figures" / "phase_curve.png"]
  assert report.write_figures(run) == report.write_figures(run.path) == expected
  assert not [*maps.feature_map(run), *maps.comparison_map([run, run])]
