"""Classifies images with a trained run.

  python -m experiments.predict RUN IMAGE_OR_FOLDER...

RUN is the work directory of a run, or one of Learner.save or experiments.export.
Images are treated as in training, whatever their size, colours and rotation.
Images that cannot be read are named and skipped. The table shows the most likely
classes of each image by both read-outs: the head, and the nearest mean of exemplars.

If folders have the names of learned classes, predictions are compared with them:
accuracy and a confusion matrix. --class_names and ImageNet give such names, too.

  python -m experiments.predict RUN DIR/val --top=1 --confusion=confusion.csv
"""

from collections.abc import Sequence
import csv
import io
import sys
from typing import Any

from absl.flags import DEFINE_integer, DEFINE_string, FlagValues
import numpy as np

from experiments import command, flags, launch, names
from mnemonics_jax import files
from mnemonics_jax.data import read_images
from mnemonics_jax.data.dataset import printable
from mnemonics_jax.data.folder import folder_names
from mnemonics_jax.errors import UserError
from mnemonics_jax.registry import READOUTS

FLAGS = FlagValues()
names.define(FLAGS, "seed", "phase", "network", "class_names")
DEFINE_integer(
  "top", 3, "How many classes to show of each image.", flag_values=FLAGS
)
DEFINE_string(
  "csv",
  None,
  "Also writes names and probabilities to this file.",
  flag_values=FLAGS,
)
DEFINE_string(
  "confusion",
  None,
  "Writes the confusion matrix of the method's read-out to this file, as CSV:"
  " a row for each class that images show, a column for each prediction.",
  flag_values=FLAGS,
)

USAGE = "python -m experiments.predict RUN IMAGES"
_BLOCK = 512  # Images in memory at a time.
_WIDEST = 100  # Characters of a matrix that is printed.


def main(arguments: Sequence[str]) -> None:
  run = names.run_directory(arguments, USAGE)
  if len(arguments) < 2:
    raise UserError("image", "There is no image to look at", f"write {USAGE}")
  if FLAGS.top < 1:
    raise UserError("top", f"`top={FLAGS.top}` shows nothing", "use 1 or more")
  for flag in ("csv", "confusion"):
    _check_output(flag)
  given = names.class_names(FLAGS)
  with launch.programs_kept():
    learner, known = names.load(run, FLAGS)
    labels = [printable(str(name)) for name in known.names]
    # A class is called by its name, or by a folder that was learned or exported.
    label = {name: number for number, name in enumerate(labels)}
    classes = {
      name: number for number, name in enumerate(folder_names(known.names))
    }
    folders = names.folders_of(labels, given)
    classes |= {folder: label[name] for folder, name in folders.items()}
    found = names.pictures(arguments[1:], classes)
    likely, rows = _predict(learner, known, found)
  shown = [found[row] for row in rows]
  truth = np.array([classes.get(one.folder or "", -1) for one in shown])
  table = _rows(shown, truth, likely, labels)
  # Files first: a reader such as `head` may close the pipe.
  if FLAGS.csv:
    header = "image", "true", "readout", "rank", "class", "probability"
    _write_csv(FLAGS.csv, [header, *table])
  told = bool((truth >= 0).any())
  compared = _compared(truth, likely, labels, learner.readout) if told else ""
  print(_aligned(_cells(table, told)))
  print(compared, end="")
  if FLAGS.confusion and not told:
    raise UserError(
      "confusion",
      "`confusion` has nothing to compare: no image is in a folder with the"
      " name of a known class",
      f"known are {', '.join(labels[:5])}{', ...' if labels[5:] else ''}",
    )


def _check_output(flag):
  given = FLAGS[flag].value
  if given is None:
    return
  path = flags.path(given)
  if path.is_dir():
    raise UserError(
      flag,
      f"`{flag}={path}` is a directory",
      "name a file, such as predictions.csv",
    )
  flags.check_directory(flag, path.parent)


def _predict(learner, known, found):
  """Probabilities by read-out, and the rows of the images that could be read."""
  likely: dict[str, list[np.ndarray]] = {name: [] for name in READOUTS}
  rows = []
  for start in range(0, len(found), _BLOCK):
    block = [one.path for one in found[start : start + _BLOCK]]
    images, problems = read_images(block, known.network.image_shape)
    for path, problem in zip(block, problems, strict=True):
      if problem:
        print(f"Skipped {printable(path)}: {problem}", file=sys.stderr)
    good = [i for i, problem in enumerate(problems) if not problem]
    rows += [start + i for i in good]
    for name, parts in likely.items():
      parts.append(learner.predict_proba(known, images[good], readout=name))
  if not rows:
    raise UserError(
      "image", "None of the images can be read", "name PNG, JPEG, BMP or WebP"
    )
  return {name: np.concatenate(parts) for name, parts in likely.items()}, rows


def _rows(shown, truth, likely, labels) -> list[tuple[Any, ...]]:
  """(image, true class, read-out, rank, class, probability), as in the CSV."""
  top = min(FLAGS.top, len(labels))
  return [
    (
      printable(one.path),
      labels[label] if label >= 0 else "",
      readout,
      rank + 1,
      labels[best],
      round(float(parts[row, best]), 6),
    )
    for row, (one, label) in enumerate(zip(shown, truth, strict=True))
    for readout, parts in likely.items()
    for rank, best in enumerate(np.argsort(-parts[row], kind="stable")[:top])
  ]


def _cells(table, with_truth) -> list[list[str]]:
  """The table for people: read-outs beside each other."""
  columns = [cell for name in READOUTS for cell in (name, "%")]
  header = ["image", *(["true"] if with_truth else []), *columns]
  found: dict[tuple[int, int], list[str]] = {}
  number = 0
  for image, true, readout, rank, name, share in table:
    if (readout, rank) == (next(iter(READOUTS)), 1):
      number += 1
    start = [image if rank == 1 else ""]
    start += [true if rank == 1 else ""] if with_truth else []
    cells = found.setdefault((number, rank), start)
    cells += [name, f"{100 * share:.1f}"]
  return [header, *found.values()]


def _aligned(lines: Sequence[Sequence[str]]) -> str:
  """Aligned columns; numbers end where their headers end."""
  columns = list(zip(*lines, strict=True))
  widths = [max(map(len, column)) for column in columns]
  number = lambda cell: cell.replace(".", "").isdigit() or not cell
  numbers = [all(map(number, column[1:])) for column in columns]
  return "\n".join(
    "  ".join(
      cell.rjust(width) if number else cell.ljust(width)
      for cell, width, number in zip(line, widths, numbers, strict=True)
    ).rstrip()
    for line in lines
  )


def _compared(truth, likely, labels, readout) -> str:
  """Accuracy and confusion of the images whose folders say what they show.

  The confusion matrix is written to --confusion, too.
  """
  told, lines = truth >= 0, [""]
  if not told.all():
    other = (~told).sum()
    lines.append(f"{other} images are in no folder that names a known class.")
  for name, parts in likely.items():
    right = parts[told].argmax(-1) == truth[told]
    mark = " *" if name == readout else ""
    lines.append(
      f"accuracy {name}: {100 * right.mean():.2f} %"
      f" ({right.sum()} of {told.sum()}){mark}"
    )
  lines.append("* the method's read-out")
  guesses = likely[readout][told].argmax(-1)
  counts = np.zeros((len(labels), len(labels)), int)
  np.add.at(counts, (truth[told], guesses), 1)
  matrix = [("true", *labels)]
  matrix += [
    (labels[i], *map(str, counts[i])) for i in np.flatnonzero(counts.sum(1))
  ]
  if FLAGS.confusion:
    _write_csv(FLAGS.confusion, matrix)
  widths = [max(map(len, column)) for column in zip(*matrix, strict=True)]
  if sum(widths) + 2 * len(widths) <= _WIDEST:
    by = f"predictions by {readout} beside"
    lines += [f"\nTrue classes below each other, {by}:", _aligned(matrix)]
  elif not FLAGS.confusion:
    lines.append(
      "The confusion matrix is too wide; --confusion=FILE writes it."
    )
  return "\n".join([*lines, ""])


def _write_csv(path, rows):
  text = io.StringIO(newline="")
  csv.writer(text).writerows(rows)
  path = flags.path(path)
  files.make_directory(path.parent)
  files.write_text(path, text.getvalue())


if __name__ == "__main__":
  with command.session(__doc__, FLAGS, arguments=True) as given:
    main(given)
