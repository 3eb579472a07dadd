"""Which image files a directory has, by split and class."""

from collections import Counter
from collections.abc import Iterator
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.paths import Paths

LAYOUT = "train/<class>/*.jpg"
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


class Listing(NamedTuple):
  """The image files of a directory, sorted by split, class and name.

  Attributes:
    root: the directory.
    classes: names of the class directories, sorted.
    files: all images.
    labels: index into `classes` of each file.
    is_test: which files are in `val/`; None if there is no such directory.
    notes: what a person should know about what was not listed, or twice.
  """

  root: Path
  classes: list[str]
  files: Paths
  labels: np.ndarray
  is_test: np.ndarray | None
  notes: tuple[str, ...]


def printable(name: str | Path) -> str:
  """The name with control characters and undecodable bytes escaped."""
  return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(name))


def scan(root: Path, least: int = 2) -> Listing:
  """Lists the images of `root`, which must have classes and no empty one.

  Args:
    root: the directory.
    least: how many classes it must have.
  """
  if not root.is_dir():
    state = "is not a directory" if root.exists() else "does not exist"
    raise DataError(
      "data_dir", f"`data_dir={root}` {state}", f"name one with {LAYOUT}"
    )
  validation = [root / name for name in ("val", "test")]
  validation = [path for path in validation if path.is_dir()]
  train = root / "train"
  if not train.is_dir():
    if validation:
      raise DataError(
        "data_dir",
        f"`data_dir={root}` has {validation[0].name}/ but no train/",
        f"name a directory with {LAYOUT}",
      )
    train = root  # The classes themselves.
  skipped: Counter[str] = Counter()
  files = Paths(root)
  found = _classes(train, skipped, files)
  if len(found) < least:
    raise DataError(
      "data_dir",
      f"`data_dir={root}`: {train} has {len(found)} class directories, at least"
      f" {least} are needed",
      f"sort the images into {LAYOUT}",
    )
  classes = list(found)
  splits = [found]
  if validation:
    held = _classes(validation[0], skipped, files)
    if different := sorted(held.keys() ^ found.keys()):
      listed = ", ".join(map(printable, different[:5]))
      raise DataError(
        "data_dir",
        f"`data_dir={root}`: train/ and {validation[0].name}/ must have the same"
        f" classes, but only one of them has {listed}",
        f"add or remove them, or move {validation[0].name}/ away to hold out"
        " `val_fraction` of train/",
      )
    splits.append(held)
  counts = [split[name] for split in splits for name in classes]
  labels = np.tile(np.arange(len(classes), dtype=np.int32), len(splits))
  is_test = np.arange(len(files)) >= sum(found.values())
  return Listing(
    root=root,
    classes=classes,
    files=files,
    labels=np.repeat(labels, counts),
    is_test=is_test if validation else None,
    notes=(*_unread(skipped), *_twice(train, validation[:1])),
  )


def _unread(skipped):
  """What was left out for its suffix."""
  if skipped:
    kinds = [
      f"{n} {printable(s) or 'without'}" for s, n in skipped.most_common()
    ]
    yield (
      f"{skipped.total():,} files are left out for their suffix:"
      f" {', '.join(kinds[:5])}{', ...' if kinds[5:] else ''}; {LAYOUT} may be"
      f" {' '.join(SUFFIXES)}."
    )


def _twice(train, validation):
  """A split that would be tested on what it was trained on."""
  for path in validation:
    if path.samefile(train):
      yield (
        f"{path.name}/ is the same directory as train/: accuracies are those on"
        " training images."
      )


_SPLITS = {"train", "training", "val", "valid", "validation", "test", "images"}
_MANY = 2000


def odd(classes: list[str]) -> tuple[str, ...]:
  """What makes one doubt that directories of these names are classes.

  >>> odd(["cat", "dog"])
  ()
  >>> odd(["train2", "Val", "cat"])
  ('Val is taken for a class; is data_dir one level too high?',)
  """
  notes = []
  if splits := [name for name in classes if name.lower() in _SPLITS]:
    notes.append(
      f"{' and '.join(map(printable, splits))} {'are' if splits[1:] else 'is'}"
      f" taken for {'classes' if splits[1:] else 'a class'}; is data_dir one"
      " level too high?"
    )
  if len(classes) > _MANY:
    notes.append(
      f"there are {len(classes):,} class directories; is every image in one of"
      " its own?"
    )
  return tuple(notes)


def _classes(
  directory: Path, skipped: Counter[str], files: Paths
) -> dict[str, int]:
  """How many images each class has; they are added to `files`."""
  classes = {}
  for path in sorted(directory.iterdir()):
    if path.name.startswith(".") or not path.is_dir():
      continue
    # A class may be a link to where its images are, but not to its own parent.
    if directory.resolve().is_relative_to(path.resolve()):
      continue
    images = sorted(image_files(path, skipped))
    files.extend(images)
    classes[path.name] = len(images)
    if not images:
      raise DataError(
        "data_dir",
        f"`data_dir`: class directory {printable(path)} has no image"
        f" ({' '.join(SUFFIXES)})",
        "add some or remove it",
      )
  return classes


def image_files(directory: Path, skipped: Counter[str]) -> Iterator[Path]:
  """The images below a directory, in any order.

  Args:
    directory: hidden ones in it are not looked into.
    skipped: counts suffixes of files that are no images.
  """

  def fail(error: OSError):
    raise error

  # Links to directories are not followed: they may lead in circles.
  for folder, subfolders, names in os.walk(directory, onerror=fail):
    subfolders[:] = [name for name in subfolders if not name.startswith(".")]
    for name in names:
      if name.startswith("."):
        continue
      if name.lower().endswith(SUFFIXES):
        yield Path(folder, name)
      else:
        skipped[Path(name).suffix.lower()] += 1
