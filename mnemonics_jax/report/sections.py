"""The sections of a run's page. A new one is a function in `SECTIONS`.

Each takes the run and the directory of the page, from which links lead.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mnemonics_jax.report import maps, markup, pictures, tables
from mnemonics_jax.report.lines import MOVING
from mnemonics_jax.report.words import count, shorten
from mnemonics_jax.runs.finished import Run

# Both keep pages light, whose images are not made smaller by what loses some.
_MAX_SHEETS = 6  # Of one stage.
_SHEET_PIXELS = 300_000  # Of all sheets.


class Section(NamedTuple):
  """Part of a page.

  Attributes:
    title: heading, as text.
    body: HTML; made with `markup`, so that names from outside stay text.
  """

  title: str
  body: str


def _figures(
  run: Run, at: Path, names: list[str], caption: str, **options: bool
) -> str:
  """Pictures beside each other under one caption; "" when none exists."""
  found = [_path(run, name) for name in names]
  body = [markup.picture(path, at, **options) for path in found]
  body = [figure for figure in body if figure]
  if not body:
    return ""
  kind = "row" if len(body) > 1 else "single"
  return (
    f'<p>{markup.text(caption)}</p><div class="{kind}">{"".join(body)}</div>'
  )


def _path(run: Run, name: str) -> Path:
  return run.path / "figures" / f"{name}.png"


def accuracy(run: Run, at: Path) -> Section:
  several = len(run.results["seeds"]) > 1
  caption = (
    "After every phase the network is tested on all classes it has met so far, "
    "so the task grows from left to right. The head is the network's own "
    "classifier; nme compares an image with the mean of each class's exemplars."
  )
  if several:
    caption += " The ribbon is the 95 % confidence interval over the seeds."
  note = (
    "Accuracy in percent. Average: mean over all phases. Forgetting: points "
    "lost on the first classes between the first phase and the last. Bold: the "
    "reported read-out."
  )
  figure = markup.picture(_path(run, "phase_curve"), at)
  table = markup.table(tables.phase_table(run.results))
  body = (
    f'<p>{markup.text(caption)}</p><div class="beside">{figure}'
    f'<div>{table}<p class="note">{markup.text(note)}</p></div></div>'
  )
  return Section("Accuracy", body)


def seeds(run: Run, at: Path) -> Section | None:
  if len(run.results["seeds"]) < 2:
    return None
  return Section("Seeds", markup.table(tables.seed_table(run.results)))


def class_groups(run: Run, at: Path) -> Section | None:
  names = [f"accuracy_matrix_{r}" for r in tables.readouts(run.results)]
  caption = (
    "Read down a column to see how well the classes of one phase are still "
    "known as later ones arrive. The diagonal is the accuracy on classes just "
    "learned, the last row what is left at the end."
  )
  body = _figures(run, at, names, caption)
  return Section("Kept and lost", body) if body else None


def moments(run: Run, at: Path) -> Section | None:
  parts = []
  for name in tables.readouts(run.results):
    data = tables.finetune_table(run.results, name)
    if data:
      parts.append(f"<h4>Read-out {name}</h4>{markup.table(data)}")
  title = "Fine-tune" if parts else "Old and new classes"
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
  body = _figures(run, at, ["moments"], caption, wide=True) + "".join(parts)
  return Section(title, body) if body else None


def confusion(run: Run, at: Path) -> Section | None:
  names = [f"confusion_{r}" for r in tables.readouts(run.results)]
  caption = (
    "After the last phase: each row is a true class, each column a prediction; "
    "a perfect network has a dark diagonal only. Lines separate the phases. "
    "Colour in the columns on the right means that old classes are taken for "
    "new ones."
  )
  body = _figures(run, at, names, caption)
  return Section("Confusions", body) if body else None


def training(run: Run, at: Path) -> Section | None:
  caption = (
    "Loss and accuracy on the training images, epoch by epoch, all phases "
    "one after the other; bands mark the phases, colours the stages."
  )
  if len(run.results["seeds"]) > 1:
    caption += " Strong lines: the first seed; faint lines: the others."
  body = _figures(run, at, ["training_curves"], caption, wide=True)
  return Section("Training", body) if body else None


def exemplars(run: Run, at: Path) -> Section | None:
  caption = (
    "How far exemplars are from the images they began with, after each meta "
    "epoch: in pixels, and in the features of the network that was fixed while "
    "they moved. One line per phase, dark to bright; all begin at zero. A line "
    "that levels off has settled, or has reached the largest change allowed."
  )
  if len(run.results["seeds"]) > 1:
    caption += " Means over the seeds."
  parts = [_figures(run, at, ["exemplar_distances"], caption, wide=True)]
  if coded := tables.coding_table(run.results):
    text = (
      "Loss on validation images of a model that is trained on the exemplars: as "
      "they were chosen, as they were learned, and as the codec keeps them; the "
      "mean over the seeds."
    )
    parts.append(f"<p>{text}</p>{markup.table(coded)}")
  found = {stage: pictures.load(run, stage) for stage in MOVING}
  found = {stage: change for stage, change in found.items() if change}
  for stage, change in found.items():
    parts.append(_sheets(run, at, stage, change, _SHEET_PIXELS // len(found)))
  body = "".join(parts)
  return Section("Learning exemplars", body) if body else None


def _sheets(
  run: Run, at: Path, stage: str, found: Sequence[pictures.Change], pixels: int
) -> str:
  """Exemplars before and after a stage, by phase and class.

  Args:
    run: whose.
    at: where the page is.
    stage: which changed them.
    found: what it changed.
    pixels: of all pictures together, about.
  """
  done, _ = MOVING[stage]
  shown = pictures.evenly(found, _MAX_SHEETS)
  gain = pictures.amplification(found)
  height, width = pictures.reduced(*found[0].before.shape[1:3])
  # Two images of a class, three pictures of each.
  room = pixels // (len(shown) * 6 * height * width)
  most = min(max(room, 2), 10)
  classes = max(len(np.unique(change.labels)) for change in shown)
  text = (
    f"Exemplars before and after they were {done}, and the change: after "
    f"minus before, {gain} times amplified around grey. Plain grey means no "
    "change, brighter a higher value, colour a change of hue. Seed "
    f"{run.results['seeds'][0]}."
  )
  if len(shown) < len(found):
    text += f" {len(shown)} of {len(found)} phases are shown."
  if most < classes:
    text += f" Up to {most} classes of a phase are shown, the links have more."
  body = "".join(_sheet(run, at, stage, change, gain, most) for change in shown)
  return (
    f"<h4>Exemplars {done}</h4><p>{markup.text(text)}</p>"
    f'<div class="sheets">{body}</div>'
  )


def _moved(name: str, strip: pictures.Strip) -> str:
  """What a strip shows, for those who do not see it."""
  if not strip.moved:
    return f"{name}, not changed"
  return f"{name}, changed by {strip.moved:.2g} grey levels on average"


def _sheet(
  run: Run, at: Path, stage: str, change: pictures.Change, gain: int, most: int
) -> str:
  """A table: a row per class, in each cell one exemplar's three pictures."""
  strips = pictures.strips(change, gain, most)
  zoom = pictures.zoom(*change.before.shape[1:3])
  head = "".join(
    f"<span>{word}</span>" for word in ("before", "after", f"×{gain}")
  )
  head = f"<th><div>{head}</div></th>"
  columns = max(map(len, strips.values()))
  rows = "".join(
    f'<tr><th scope="row">{markup.text(name)}</th>'
    + "".join(
      f"<td>{markup.pixels(strip.pixels, _moved(name, strip), zoom)}</td>"
      for strip in row
    )
    + "</tr>"
    for name, row in (
      (shorten(run.results["class_names"][label], 13), row)
      for label, row in strips.items()
    )
  )
  picture = _path(run, pictures.sheet_name(stage, change.phase))
  links = f"{markup.link(picture, at)}, {markup.link(picture.with_suffix('.csv'), at)}"
  return (
    '<figure><div class="scroll" tabindex="0"><table class="sheet">'
    f"<thead><tr><td></td>{head * columns}</tr></thead>"
    f"<tbody>{rows}</tbody></table></div><figcaption>"
    f"{markup.text(pictures.extent(change))} {links}</figcaption></figure>"
  )


MAP_CAPTION = (
  "Each dot is a test image, each star an exemplar, each grey cross another "
  "class, placed by t-SNE so that images with similar features lie close "
  "together. Colours are for the three classes that are recognised least in "
  "the end, for two each of the first and the last phase, and for others if "
  "there are fewer. Good exemplars lie inside the cloud of their class; clouds "
  "that run into each other are classes the network confuses. All panels share "
  "one map, so places can be compared; distances between far groups and the "
  "axes themselves mean nothing."
)


def features(run: Run, at: Path) -> Section | None:
  caption = (
    f"{MAP_CAPTION} Percentages are the share of a class that is recognised in "
    f"the end. Seed {run.results['seeds'][0]}."
  )
  wide = len(maps.mapped_phases(run)) > 1
  body = _figures(run, at, ["feature_map"], caption, wide=wide)
  return Section("Map of features", body) if body else None


def memory(run: Run, at: Path) -> Section | None:
  classes = pictures.memory_images(run)
  if not classes:
    return None
  shown = max(len(entry.images) for entry in classes)
  most = max(entry.count for entry in classes)
  seed = run.results["seeds"][0]
  intro = f"The images kept of each class after the last phase (seed {seed})."
  if shown < most:
    intro += f" The first {shown} of up to {most} per class are shown."
  if len(classes) < len(run.results["class_names"]):
    intro += f" {len(classes)} classes are shown, evenly spaced."
  cards = "".join(
    "<figure>"
    + markup.pixels(
      pictures.tile(entry.images, gap=1),
      f"{entry.name}: {count(len(entry.images), 'exemplar')}",
      pictures.zoom(*entry.images.shape[1:3]),
    )
    + f"<figcaption>{markup.text(entry.name)}"
    f" <small>phase {entry.phase}</small></figcaption></figure>"
    for entry in classes
  )
  sheet = _path(run, "memory")
  links = (
    f"{markup.link(sheet, at)}, {markup.link(sheet.with_suffix('.csv'), at)}"
  )
  return Section(
    "Memory",
    f'<p>{markup.text(intro)}</p><div class="memory">{cards}</div>'
    f'<p class="note">{links}</p>',
  )


def repeat(run: Run, at: Path) -> Section:
  parts = []
  if run.config.get("command"):
    command = markup.text(run.config["command"])
    parts.append(f'<pre tabindex="0"><code>{command}</code></pre>')
  parts.append(f"<p>Results are in <code>{markup.text(run.path)}</code>.</p>")
  for key, title in (("settings", "Settings"), ("environment", "Environment")):
    values = run.config.get(key)
    if isinstance(values, dict):
      parts.append(
        f"<details><summary>{title}</summary>{markup.pairs(values)}</details>"
      )
  return Section("Repeat", "".join(parts))


SECTIONS: tuple[Callable[[Run, Path], Section | None], ...] = (
  accuracy,
  class_groups,
  moments,
  confusion,
  training,
  exemplars,
  features,
  memory,
  seeds,
  repeat,
)
