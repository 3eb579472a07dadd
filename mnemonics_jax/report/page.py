"""report.html: one page about a run; comparison.html: one about several.

A new figure is a function in `DRAWERS` and a section that shows it.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mnemonics_jax import files
from mnemonics_jax.registry import READOUTS
from mnemonics_jax.report import draw, lines, maps, pictures, story, tables
from mnemonics_jax.report.group import (
  Group,
  by_data,
  common_title,
  labels,
  merge_seeds,
)
from mnemonics_jax.report.lines import MOVING
from mnemonics_jax.report.render import (
  Link,
  Page,
  Paragraph,
  Pixels,
  Section,
  Sheet,
  html,
)
from mnemonics_jax.report.words import count, shorten
from mnemonics_jax.runs.layout import WorkdirError
from mnemonics_jax.runs.results import Run, load_run

DRAWERS: tuple[Callable[[Run], Iterator[draw.Drawing]], ...] = (
  lines.phase_curve,
  lines.moment_curves,
  pictures.accuracy_matrices,
  pictures.confusion_matrices,
  lines.training_curves,
  lines.exemplar_distances,
  pictures.change_sheets,
  maps.feature_map,
  pictures.memory_sheet,
)
COMPARISONS: tuple[Callable[[Sequence[Run]], Iterator[draw.Drawing]], ...] = (
  lines.comparison_curves,
  maps.comparison_map,
  lines.comparison_distances,
)

# Both keep pages light, whose images are not compressed with loss.
_MAX_SHEETS = 6  # Of one stage.
_SHEET_PIXELS = 300_000  # Of all sheets.

_MAP_CAPTION = (
  "Each dot is a test image, each star an exemplar, each grey cross another "
  "class, placed by t-SNE so that images with similar features lie close "
  "together. Colours are for the three classes that are recognised least in "
  "the end, for two each of the first and the last phase, and for others if "
  "there are fewer. Good exemplars lie inside the cloud of their class; clouds "
  "that run into each other are classes the network confuses. All panels share "
  "one map, so places can be compared; distances between far groups and the "
  "axes themselves mean nothing."
)


class _Figures(NamedTuple):
  """The figures that were drawn for a page.

  Attributes:
    directory: where they are.
    drawn: names of those there are.
  """

  directory: Path
  drawn: frozenset[str]

  def path(self, name: str) -> Path:
    return self.directory / f"{name}.png"

  def those(self, *names: str) -> list[Path]:
    """Paths of those that were drawn."""
    return [self.path(name) for name in names if name in self.drawn]


def write_figures(workdir: str | os.PathLike[str] | Run) -> list[Path]:
  """Draws a run into WORKDIR/figures: NAME.png and NAME.csv for each."""
  run = workdir if isinstance(workdir, Run) else load_run(workdir)
  return _draw(run, run.path / "figures")


def _draw(run: Run, directory: Path) -> list[Path]:
  drawings = (item for drawer in DRAWERS for item in drawer(run))
  return draw.save_all(drawings, _own(directory))


def build(
  workdirs: Sequence[str | os.PathLike[str]],
  output: str | os.PathLike[str] | None = None,
) -> Path:
  """Draws the figures of runs and writes one page about them.

  >>> build(["finished_run"]).as_posix()
  'finished_run/report.html'

  Figures are written beside the page. A page about several runs links to one
  about each, which is written into its work directory. If that cannot be written
  to, it is written beside an `output` that can.

  Args:
    workdirs: one work directory, or several to compare.
    output: the page to write, or a directory for it; by default report.html
      in the work directory, or comparison.html in the first one of several.

  Returns:
    The path of the page.

  Raises:
    WorkdirError: when a directory holds no run that has ended a phase.
  """
  if not workdirs:
    raise WorkdirError(
      "workdir",
      "There is nothing to report on",
      "name the work directory of at least one run",
    )
  runs = [load_run(path, unfinished=True) for path in workdirs]
  name = "report.html" if len(runs) == 1 else "comparison.html"
  path = runs[0].path / name if output is None else Path(output)
  if path.is_dir():
    path = path / name
  path.parent.mkdir(parents=True, exist_ok=True)
  if len(runs) == 1:
    return _write_single(runs[0], path)
  pages = []
  for number, run in enumerate(runs, 1):
    try:
      pages.append(_write_single(run, run.path / "report.html"))
    except (OSError, WorkdirError):
      if output is None:
        raise
      beside = path.with_name(f"{path.stem}_{number}.html")
      pages.append(_write_single(run, beside))
  files.write_text(path, html(_comparison(runs, pages, path), path.parent))
  return path


def _write_single(run: Run, path: Path) -> Path:
  directory = _figures_of(path)
  drawn = frozenset(figure.stem for figure in _draw(run, directory))
  page = single(run, _Figures(directory, drawn))
  files.write_text(path, html(page, path.parent))
  return path


def _figures_of(page: Path) -> Path:
  """Where the figures of a page are: pages of one directory do not share them."""
  usual = page.name in ("report.html", "comparison.html")
  return page.parent / ("figures" if usual else f"{page.stem}_figures")


def _own(directory: Path) -> Path:
  """Refuses a link: somebody else may have chosen where it leads."""
  if directory.is_symlink():
    raise WorkdirError(
      "figures",
      f"{directory} is a link, and figures are not written where it leads",
      "remove it, or name a page elsewhere with `output`",
    )
  return directory


def single(run: Run, figures: _Figures) -> Page:
  """The page about a run."""
  results = run.results
  opening = [
    Paragraph(story.unfinished(run), "warning"),
    Paragraph(story.outcome(run), "lead"),
    Paragraph(story.advice(run), "advice"),
    Paragraph(story.describe(results)),
  ]
  # Sections come first: they find out which files are damaged.
  sections = [found for make in SECTIONS if (found := make(run, figures))]
  cards = story.key_numbers(run)
  opening += [Paragraph(problem, "warning") for problem in run.problems]
  return Page(
    "Run report",
    results["title"],
    [one for one in opening if one.text],
    cards,
    story.caveat(results),
    sections,
    menu=True,
  )


def _accuracy(run: Run, figures: _Figures) -> Section:
  caption = (
    "After every phase the network is tested on all classes it has met so far, "
    "so the task grows from left to right. The head is the network's own "
    "classifier; nme compares an image with the mean of each class's exemplars."
  )
  if len(run.results["seeds"]) > 1:
    caption += " The ribbon is the 95 % confidence interval over the seeds."
  note = (
    "Accuracy in percent. Average: mean over all phases. Forgetting: points "
    "lost on the first classes between the first phase and the last. Bold: the "
    "reported read-out."
  )
  return Section(
    "Accuracy",
    "beside",
    text=[caption],
    figures=figures.those("phase_curve"),
    tables=[tables.phase_table(run.results)],
    notes=[note],
  )


def _class_groups(run: Run, figures: _Figures) -> Section | None:
  caption = (
    "Read down a column to see how well the classes of one phase are still "
    "known as later ones arrive. The diagonal is the accuracy on classes just "
    "learned, the last row what is left at the end."
  )
  names = [f"accuracy_matrix_{r}" for r in tables.readouts(run.results)]
  return _pictured("Kept and lost", caption, figures.those(*names))


def _pictured(
  title: str, caption: str, figures: Sequence[Path], wide: bool = False
) -> Section | None:
  """A section of figures, if there are any."""
  if not figures:
    return None
  return Section(title, text=[caption], figures=figures, wide=wide)


def _moments(run: Run, figures: _Figures) -> Section | None:
  parts = [
    Section(f"Read-out {name}", tables=[table])
    for name in tables.readouts(run.results)
    if (table := tables.finetune_table(run.results, name))
  ]
  caption = (
    "Each phase ends with a fine-tune on the exemplars, the same number for "
    "every class. Dashed lines with open marks show the accuracy just before "
    "it, solid lines just after: see what old classes gain, and whether new "
    "ones pay for it. A fine-tune of the head alone leaves nme as it is."
    if parts
    else "Accuracy after each phase on the classes of earlier phases, on those "
    "it brought, and on both. What is gained on one side is often lost on the "
    "other: look whether old and new classes are at the same height."
  )
  if len(run.results["seeds"]) > 1:
    caption += " Means over the seeds."
  found = figures.those("moments")
  if not found and not parts:
    return None
  return Section(
    "Fine-tune" if parts else "Old and new classes",
    text=[caption] if found else [],
    figures=found,
    wide=True,
    parts=parts,
  )


def _confusion(run: Run, figures: _Figures) -> Section | None:
  caption = (
    "After the last phase: each row is a true class, each column a prediction; "
    "a perfect network has a dark diagonal only. Lines separate the phases. "
    "Colour in the columns on the right means that old classes are taken for "
    "new ones."
  )
  names = [f"confusion_{r}" for r in tables.readouts(run.results)]
  return _pictured("Confusions", caption, figures.those(*names))


def _training(run: Run, figures: _Figures) -> Section | None:
  caption = (
    "Loss and accuracy on the training images, epoch by epoch, all phases "
    "one after the other; bands mark the phases, colours the stages."
  )
  if len(run.results["seeds"]) > 1:
    caption += " Strong lines: the first seed; faint lines: the others."
  found = figures.those("training_curves")
  return _pictured("Training", caption, found, wide=True)


def _exemplars(run: Run, figures: _Figures) -> Section | None:
  caption = (
    "How far exemplars are from the images they began with, after each meta "
    "epoch: in pixels, and in the features of the network that was fixed while "
    "they moved. One line per phase, dark to bright; all begin at zero. A line "
    "that levels off has settled, or has reached the largest change allowed."
  )
  if len(run.results["seeds"]) > 1:
    caption += " Means over the seeds."
  distances = figures.those("exemplar_distances")
  parts = []
  if coded := tables.coding_table(run.results):
    text = (
      "Loss on validation images of a model that is trained on the exemplars: as "
      "they were chosen, as they were learned, and as the codec keeps them; the "
      "mean over the seeds."
    )
    parts.append(Section(text=[text], tables=[coded]))
  found = {stage: pictures.changes(run, stage) for stage in MOVING}
  found = {stage: changes for stage, changes in found.items() if changes}
  for stage, changes in found.items():
    pixels = _SHEET_PIXELS // len(found)
    parts.append(_sheets(run, figures, stage, changes, pixels))
  if not distances and not parts:
    return None
  return Section(
    "Learning exemplars",
    text=[caption] if distances else [],
    figures=distances,
    wide=True,
    parts=parts,
  )


def _sheets(
  run: Run,
  figures: _Figures,
  stage: str,
  found: Sequence[pictures.Change],
  pixels: int,
) -> Section:
  """Exemplars before and after a stage, of about so many pixels in all."""
  done, _ = MOVING[stage]
  shown = pictures.evenly(found, _MAX_SHEETS)
  gain = pictures.amplification(found)
  height, width = pictures.reduced(*found[0].before.shape[1:3])
  # Two images of a class, three pictures of each.
  room = pixels // (len(shown) * 6 * height * width)
  most = min(max(room, 2), 10)
  text = (
    f"Exemplars before and after they were {done}, and the change: after "
    f"minus before, {gain} times amplified around grey. Plain grey means no "
    "change, brighter a higher value, colour a change of hue. Seed "
    f"{run.results['seeds'][0]}."
  )
  if len(shown) < len(found):
    text += f" {len(shown)} of {len(found)} phases are shown."
  if most < max(len(np.unique(change.labels)) for change in shown):
    text += f" Up to {most} classes of a phase are shown, the links have more."
  sheets = [
    Sheet(
      ["before", "after", f"×{gain}"],
      _strips(run, change, gain, most),
      pictures.extent(change),
      figures.path(pictures.sheet_name(stage, change.phase)),
    )
    for change in shown
  ]
  return Section(f"Exemplars {done}", text=[text], sheets=sheets)


def _strips(
  run: Run, change: pictures.Change, gain: int, most: int
) -> list[tuple[str, list[Pixels]]]:
  """For some classes: before, after and change of each image, side by side."""
  zoom = pictures.zoom(*change.before.shape[1:3])
  kinds = [
    pictures.resize(images, pictures.reduced(*images.shape[1:3]))
    for images in change.shown(gain)
  ]
  rows = []
  for label in pictures.evenly(np.unique(change.labels).tolist(), most):
    name, strips = shorten(run.results["class_names"][label], 13), []
    for index in np.flatnonzero(change.labels == label):
      moved = change.moved[index].mean()
      words = f"changed by {moved:.2g} grey levels on average"
      strip = pictures.tile(np.stack([kind[index] for kind in kinds]), gap=1)
      words = f"{name}, {words if moved else 'not changed'}"
      strips.append(Pixels(strip, words, zoom))
    rows.append((name, strips))
  return rows


def _features(run: Run, figures: _Figures) -> Section | None:
  caption = (
    f"{_MAP_CAPTION} Percentages are the share of a class that is recognised in "
    f"the end. Seed {run.results['seeds'][0]}."
  )
  found = figures.those("feature_map")
  wide = len(maps.mapped_phases(run)) > 1
  return _pictured("Map of features", caption, found, wide)


def _memory(run: Run, figures: _Figures) -> Section | None:
  classes = pictures.memory_images(run)
  if not classes:
    return None
  shown = max(len(entry.images) for entry in classes)
  most = max(entry.count for entry in classes)
  seed = run.results["seeds"][0]
  text = f"The images kept of each class after the last phase (seed {seed})."
  if shown < most:
    text += f" The first {shown} of up to {most} per class are shown."
  if len(classes) < len(run.results["class_names"]):
    text += f" {len(classes)} classes are shown, evenly spaced."
  tiles = [
    Pixels(
      pictures.tile(entry.images, gap=1),
      f"{entry.name}: {count(len(entry.images), 'exemplar')}",
      pictures.zoom(*entry.images.shape[1:3]),
      entry.name,
      f"phase {entry.phase}",
    )
    for entry in classes
  ]
  return Section(
    "Memory", text=[text], tiles=tiles, files=[figures.path("memory")]
  )


def _seeds(run: Run, figures: _Figures) -> Section | None:
  if len(run.results["seeds"]) < 2:
    return None
  return Section("Seeds", tables=[tables.seed_table(run.results)])


def _repeat(run: Run, figures: _Figures) -> Section:
  facts = [
    (name.capitalize(), values)
    for name in ("settings", "environment")
    if isinstance(values := run.config.get(name), dict)
  ]
  place = f"Results are in {run.path}."
  command = run.config.get("command") or ""
  return Section("Repeat", command=command, text=[place], facts=facts)


SECTIONS: tuple[Callable[[Run, _Figures], Section | None], ...] = (
  _accuracy,
  _class_groups,
  _moments,
  _confusion,
  _training,
  _exemplars,
  _features,
  _memory,
  _seeds,
  _repeat,
)


def _comparison(runs: Sequence[Run], pages: Sequence[Path], path: Path) -> Page:
  """The page about several runs, which have pages of their own."""
  groups = by_data(runs)
  page_of = dict(zip(map(id, runs), pages, strict=True))
  sections = []
  for number, group in enumerate(groups, 1):
    suffix = f"_{number}" if len(groups) > 1 else ""
    sections += _group(group, page_of, _figures_of(path), suffix)
  apart = (
    "These runs do not learn the same data, so they are shown in groups. Numbers "
    "of different groups cannot be compared."
  )
  title = common_title(runs)
  return Page(
    f"Comparison of {len(runs)} runs",
    title or "Runs of different data",
    [Paragraph(apart, "lead")] if len(groups) > 1 else [],
    sections=sections,
    window=f"{len(runs)} runs of {title or 'different data'}",
  )


def _group(
  group: Group, page_of: dict[int, Path], directory: Path, suffix: str
) -> Iterator[Section]:
  """Runs on the same data: who is ahead, side by side, one by one."""
  merged = merge_seeds(group.runs)
  names = labels(merged)
  text = story.compare(names, merged)
  if len(merged) < len(group.runs) and len(merged) == 1:
    text = f"These runs differ in their seeds only and count as one. {text}"
  yield Section(group.title if suffix else "", "group", text=[text])
  if len(group.runs) > 1:
    drawings = (item for drawer in COMPARISONS for item in drawer(merged))
    named = (item._replace(name=item.name + suffix) for item in drawings)
    drawn = draw.save_all(named, _own(directory))
    # Runs that were joined have no page in common.
    links = {
      name: page_of[id(run)]
      for name, run in zip(names, merged, strict=True)
      if id(run) in page_of
    }
    yield from _side_by_side(names, merged, links, drawn)
  links = [
    Link(
      page_of[id(run)],
      name,
      f"{story.outcome(run)} {story.unfinished(run)}".strip(),
    )
    for name, run in zip(labels(group.runs), group.runs, strict=True)
  ]
  yield Section("The runs one by one", runs=links)


def _side_by_side(
  names: Sequence[str],
  runs: Sequence[Run],
  links: dict[str, Path],
  drawn: Sequence[Path],
) -> Iterator[Section]:
  """Curves and tables, and what else was drawn, a section each."""
  caption = (
    "Accuracy on all classes learned so far; the legend lists the curves in the "
    "order in which they end. Ribbons are 95 % confidence intervals over the "
    "seeds. The dashed black line, if there is one, is joint training on all "
    "images: the upper bound. Runs that differ in their seeds only are one curve."
  )
  note = (
    "Accuracy in percent, mean ± 95 % confidence interval where there are several "
    "seeds. Difference: average accuracy minus that of the first run, paired seed "
    "by seed, if both have the same seeds and phases. Bold: the run reports this "
    "read-out. Colour: the interval of the difference does not include zero."
  )
  moving = (
    "Distance of learned exemplars to the images they began with, in the "
    "features of the network that was fixed while they moved, after each meta "
    "epoch. One line per phase, dark to bright, smoothed; faint lines are what "
    "was measured, the mean over the seeds. One column per run (at most four)."
  )
  rows = " One row per run (at most four), the first seed of each."

  def those(*kinds: str) -> list[Path]:
    return [path for path in drawn if path.stem.startswith(kinds)]

  results = [run.results for run in runs]
  parts = [
    Section(f"Read-out {readout}", tables=[table], links=links)
    for readout in READOUTS
    if (table := tables.comparison_table(names, results, readout)).rows
  ]
  curves = those(*(f"comparison_{readout}" for readout in READOUTS))
  yield Section(
    "Side by side",
    "compare",
    text=[caption],
    figures=curves,
    parts=parts,
    notes=[note],
  )
  found: Iterable[Section | None] = (
    _pictured(
      "Map of features", _MAP_CAPTION + rows, those("comparison_map"), True
    ),
    _pictured(
      "How far exemplars move", moving, those("comparison_distances"), True
    ),
  )
  yield from filter(None, found)
