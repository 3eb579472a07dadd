"""What a finished run takes images for.

  python -m experiments.predict RUN IMAGE_OR_FOLDER...

RUN is the work directory of a run, or one of Learner.save or experiments.export.
Images are treated as in training, whatever their size, colours and rotation;
those that cannot be read are named and skipped. For each image the most likely
classes are shown by both read-outs: the head, and the nearest mean of exemplars.

If folders have the names of known classes, or those that --class_names or ImageNet
give them, as in a folder that is learned, what they say is compared with what is
predicted: accuracy and a confusion matrix.

  python -m experiments.predict RUN DIR/val --top=1 --confusion=confusion.csv
"""

from collections.abc import Sequence
import csv
import io
from pathlib import Path
import sys
from typing import Any

from absl import flags
import numpy as np

from experiments import (
  class_names,
  command,
  compile_cache,
  learned,
  pictures,
  workdirs,
)
from mnemonics_jax import files
from mnemonics_jax.data import read_images
from mnemonics_jax.data.dataset import printable
from mnemonics_jax.data.folder import folder_names
from mnemonics_jax.errors import UserError
from mnemonics_jax.registry import READOUTS

flags.adopt_module_key_flags(learned)
flags.adopt_module_key_flags(class_names)
_TOP = flags.DEFINE_integer("top", 3, "How many classes to show of each image.")
_CSV = flags.DEFINE_string(
  "csv", None, "Also writes names and probabilities to this file."
)
_CONFUSION = flags.DEFINE_string(
  "confusion",
  None,
  "Writes the confusion matrix of the method's read-out to this file, as CSV:"
  " a row for each class that images show, a column for each prediction.",
)

USAGE = "python -m experiments.predict RUN IMAGES"
_BLOCK = 512  # Images in memory at a time.
_WIDEST = 100  # Characters of a matrix that is printed.


def main(argv: Sequence[str]) -> None:
  run = learned.argument(argv, USAGE)
  if len(argv) < 3:
    raise UserError("image", "There is no image to look at", f"write {USAGE}")
  if _TOP.value < 1:
    raise UserError("top", f"`top={_TOP.value}` shows nothing", "use 1 or more")
  for flag in (_CSV, _CONFUSION):
    _check_output(flag)
  given = class_names.given()
  with compile_cache.kept():
    learner, known = learned.load(run)
    names = [printable(str(name)) for name in known.names]
    # A class is called by its name, or by a folder that was learned or exported.
    labels = range(len(names))
    label = dict(zip(names, labels, strict=True))
    classes = dict(zip(folder_names(known.names), labels, strict=True))
    folders = class_names.folders(names, given)
    classes |= {folder: label[name] for folder, name in folders.items()}
    found = pictures.find(argv[2:], classes)
    likely, rows = _predict(learner, known, found)
  shown = [found[row] for row in rows]
  truth = np.array([classes.get(one.folder or "", -1) for one in shown])
  table = _rows(shown, truth, likely, names)
  print(_aligned(_cells(table, bool((truth >= 0).any()))))
  if _CSV.value:
    header = "image", "true", "readout", "rank", "class", "probability"
    _write_csv(_CSV.value, [header, *table])
  _compare(truth, likely, names, learner.readout)


def _check_output(flag):
  if flag.value is None:
    return
  path = Path(flag.value)
  if path.is_dir():
    raise UserError(
      flag.name,
      f"`{flag.name}={path}` is a directory",
      "name a file, such as predictions.csv",
    )
  workdirs.check(flag.name, path.parent)


def _predict(learner, known, found):
  """By read-out the probabilities, and the rows that could be read."""
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


def _rows(shown, truth, likely, names) -> list[tuple[Any, ...]]:
  """(image, true class, read-out, rank, class, probability), as in the CSV."""
  top = min(_TOP.value, len(names))
  return [
    (
      printable(one.path),
      names[label] if label >= 0 else "",
      readout,
      rank + 1,
      names[best],
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
  """Columns under each other; numbers end where their headers end."""
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


def _compare(truth, likely, names, readout):
  """Accuracy and confusion of the images whose folders say what they show."""
  told = truth >= 0
  if not told.any():
    if _CONFUSION.value:
      raise UserError(
        "confusion",
        "`confusion` has nothing to compare: no image is in a folder with the"
        " name of a known class",
        f"known are {', '.join(names[:5])}{', ...' if names[5:] else ''}",
      )
    return
  print()
  if not told.all():
    print(f"{(~told).sum()} images are in no folder that names a known class.")
  for name, parts in likely.items():
    right = parts[told].argmax(-1) == truth[told]
    mark = " *" if name == readout else ""
    print(
      f"accuracy {name}: {100 * right.mean():.2f} %"
      f" ({right.sum()} of {told.sum()}){mark}"
    )
  print("* the method's read-out")
  guesses = likely[readout][told].argmax(-1)
  counts = np.zeros((len(names), len(names)), int)
  np.add.at(counts, (truth[told], guesses), 1)
  matrix = [("true", *names)]
  matrix += [
    (names[i], *map(str, counts[i])) for i in np.flatnonzero(counts.sum(1))
  ]
  if _CONFUSION.value:
    _write_csv(_CONFUSION.value, matrix)
  widths = [max(map(len, column)) for column in zip(*matrix, strict=True)]
  if sum(widths) + 2 * len(widths) <= _WIDEST:
    print(f"\nTrue classes below each other, predictions by {readout} beside:")
    print(_aligned(matrix))
  elif not _CONFUSION.value:
    print("The confusion matrix is too wide; --confusion=FILE writes it.")


def _write_csv(path, rows):
  text = io.StringIO(newline="")
  csv.writer(text).writerows(rows)
  files.write_text(Path(path), text.getvalue())


if __name__ == "__main__":
  command.run(main, arguments=True)
