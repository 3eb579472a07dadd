"""The sections of a run's page. A new one is a function in `SECTIONS`."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mnemonics_jax.report import changes, images, maps, markup, tables
from mnemonics_jax.runs.finished import Run

_MAX_SHEETS = 6  # Of one stage; keeps pages of many phases light.


class Section(NamedTuple):
  """Part of a page.

  Attributes:
    title: heading, as text.
    body: HTML; made with `markup`, so that names from outside stay text.
  """

  title: str
  body: str


def _figures(run: Run, names: list[str], caption: str, **options: bool) -> str:
  """Pictures beside each other under one caption; "" when none exists."""
  found = [run.path / "figures" / f"{name}.png" for name in names]
  found = [path for path in found if path.exists()]
  if not found:
    return ""
  body = "".join(
    markup.picture(path, _csv(path.stem), **options) for path in found
  )
  kind = "row" if len(found) > 1 else "single"
  return f'<p>{markup.text(caption)}</p><div class="{kind}">{body}</div>'


def _csv(name: str) -> str:
  return f"Numbers: figures/{name}.csv"


def accuracy(run: Run) -> Section:
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
  figure = markup.picture(
    run.path / "figures" / "phase_curve.png", _csv("phase_curve")
  )
  table = markup.table(tables.phase_table(run.results))
  body = (
    f'<p>{markup.text(caption)}</p><div class="beside">{figure}'
    f'<div>{table}<p class="note">{markup.text(note)}</p></div></div>'
  )
  return Section("Accuracy", body)


def seeds(run: Run) -> Section | None:
  if len(run.results["seeds"]) < 2:
    return None
  return Section("Seeds", markup.table(tables.seed_table(run.results)))


def class_groups(run: Run) -> Section | None:
  names = [f"accuracy_matrix_{r}" for r in tables.readouts(run.results)]
  caption = (
    "Read down a column to see how well the classes of one phase are still "
    "known as later ones arrive. The diagonal is the accuracy on classes just "
    "learned, the last row what is left at the end."
  )
  body = _figures(run, names, caption)
  return Section("Kept and lost", body) if body else None


def moments(run: Run) -> Section | None:
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
  body = _figures(run, ["moments"], caption, wide=True) + "".join(parts)
  return Section(title, body) if body else None


def confusion(run: Run) -> Section | None:
  names = [f"confusion_{r}" for r in tables.readouts(run.results)]
  caption = (
    "After the last phase: each row is a true class, each column a prediction; "
    "a perfect network has a dark diagonal only. Lines separate the phases. "
    "Colour in the columns on the right means that old classes are taken for "
    "new ones."
  )
  body = _figures(run, names, caption)
  return Section("Confusions", body) if body else None


def training(run: Run) -> Section | None:
  caption = (
    "Loss and accuracy on the training images, epoch by epoch, all phases "
    "one after the other; bands mark the phases, colours the stages."
  )
  if len(run.results["seeds"]) > 1:
    caption += " Strong lines: the first seed; faint lines: the others."
  body = _figures(run, ["training_curves"], caption, wide=True)
  return Section("Training", body) if body else None


def exemplars(run: Run) -> Section | None:
  caption = (
    "How far exemplars are from the images they began with, after each meta "
    "epoch: in pixels, and in the features of the network that was fixed while "
    "they moved. One line per phase, dark to bright; all begin at zero. A line "
    "that levels off has settled, or has reached the largest change allowed."
  )
  if len(run.results["seeds"]) > 1:
    caption += " Means over the seeds."
  parts = [_figures(run, ["exemplar_distances"], caption, wide=True)]
  for stage, (done, _) in changes.STAGES.items():
    found = changes.load(run, stage)
    if not found:
      continue
    shown = found
    if len(found) > _MAX_SHEETS:
      evenly = np.linspace(0, len(found) - 1, _MAX_SHEETS).round().astype(int)
      shown = [found[i] for i in evenly]
    gain = changes.amplification(found)
    text = (
      f"Exemplars before and after they were {done}, and the change: after "
      f"minus before, {gain} times amplified (×{gain}) around grey. Plain grey "
      "means no change, brighter a higher value, colour a change of hue. "
      f"Up to ten classes of the phase are shown (seed "
      f"{run.results['seeds'][0]})."
    )
    if len(shown) < len(found):
      text += f" {len(shown)} of {len(found)} phases; figures/ has the others."
    pictures = "".join(
      markup.picture(run.path / "figures" / f"{name}.png", _csv(name))
      for name in (changes.sheet_name(stage, c.phase) for c in shown)
    )
    parts.append(
      f"<h4>Exemplars {done}</h4><p>{markup.text(text)}</p>"
      f'<div class="sheets">{pictures}</div>'
    )
  body = "".join(parts)
  return Section("Learning exemplars", body) if body else None


MAP_CAPTION = (
  "What the network makes of a few classes: each dot is a test image, each "
  "star an exemplar, each grey cross another class, placed by "
  "t-SNE so that images with similar features lie close together. Good exemplars lie inside the cloud of their class; clouds "
  "that run into each other are classes the network confuses. All panels share "
  "one map, so places can be compared; distances between far groups and the "
  "axes themselves mean nothing."
)


def features(run: Run) -> Section | None:
  caption = f"{MAP_CAPTION} (Seed {run.results['seeds'][0]}.)"
  wide = len(maps.panels(run)) > 1
  body = _figures(run, ["feature_map"], caption, wide=wide)
  return Section("Map of features", body) if body else None


def memory(run: Run) -> Section | None:
  classes = images.memory_images(run)
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
    f"<figure>{markup.thumbnail(images.tile(entry.images), entry.name)}"
    f"<figcaption>{markup.text(entry.name)}"
    f" <small>phase {entry.phase}</small></figcaption></figure>"
    for entry in classes
  )
  return Section(
    "Memory", f'<p>{markup.text(intro)}</p><div class="memory">{cards}</div>'
  )


def repeat(run: Run) -> Section:
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


SECTIONS: tuple[Callable[[Run], Section | None], ...] = (
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
