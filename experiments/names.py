"""What a command line names: a trained RUN, images, and the classes they show."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
import dataclasses
import functools
import importlib
import os
from pathlib import Path
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from absl import flags
from absl.flags import FlagValues

from experiments.flags import path as path_of
from mnemonics_jax.data import Dataset
from mnemonics_jax.data.dataset import printable
from mnemonics_jax.data.folder import SUFFIXES, image_files
from mnemonics_jax.errors import UserError

if TYPE_CHECKING:
  from mnemonics_jax import Known, Learner

_FLAGS: dict[str, tuple[Any, str]] = {
  "seed": (
    flags.DEFINE_integer,
    "Which of a run's seeds; the default is its first.",
  ),
  "phase": (
    flags.DEFINE_integer,
    "After which of a run's phases; the default is the last.",
  ),
  "network": (
    flags.DEFINE_string,
    "The network of RUN, if it is one of your own: package.module:name of a linen"
    " module, or of what makes one when it is called. Code is not saved with RUN.",
  ),
  "class_names": (
    flags.DEFINE_string,
    "A text file with a line for each class: the name of its directory, blanks or a"
    " comma, the name to show. ImageNet's n01440764 and so on are known without it.",
  ),
}


def define(values: FlagValues, *names: str) -> None:
  """Defines some of the flags --seed, --phase, --network and --class_names."""
  for name in names:
    make, text = _FLAGS[name]
    make(name, None, text, flag_values=values)


# RUN: the work directory of a run, a saved learner or an export.


def run_directory(arguments: Sequence[str], usage: str) -> Path:
  """RUN, the first argument, which must be a directory."""
  if not arguments:
    raise UserError("run", "RUN is missing", f"write {usage}")
  path = path_of(arguments[0])
  if not path.is_dir():
    raise UserError(
      "run",
      f"There is no directory {path}",
      "RUN is the work directory of a run, or one of Learner.save",
    )
  return path


def load(path: Path, values: FlagValues) -> "tuple[Learner, Known]":
  """The learner in RUN after the phase, and of the seed, that flags name."""
  # Imported here so that a mistake in the flags is answered at once.
  from mnemonics_jax import Learner

  which = {n: values[n].value for n in ("seed", "phase") if n in values}
  return Learner.load(path, network=network(values), **which)


def network(values: FlagValues) -> Any:
  """The network that --network names; None if it was not given."""
  given = values.network
  if given is None:
    return None
  module, _, name = given.partition(":")
  if not name.isidentifier() or not all(
    part.isidentifier() for part in module.split(".")
  ):
    raise UserError(
      "network",
      f"`network={given}` names nothing",
      "write `network=package.module:name`",
    )
  sys.path.append(os.getcwd())  # Where `python -m` looks, too.
  try:
    found = getattr(importlib.import_module(module), name)
    is_made = hasattr(found, "init") and not isinstance(found, type)
    made = found if is_made else found()
  except Exception as error:  # It is the user's code.
    raise UserError(
      "network",
      f"`network={given}` cannot be used ({type(error).__name__}: {error})",
      "name a linen module, or what makes one without arguments",
    ) from error
  finally:
    sys.path.remove(os.getcwd())
  if not hasattr(made, "init"):
    raise UserError(
      "network",
      f"`network={given}` is a {type(made).__name__}",
      "name a linen module, or what makes one without arguments",
    )
  return made


# Images in files and folders.


class Picture(NamedTuple):
  """An image file, and the class that its folder names.

  Attributes:
    path: of the file.
    folder: the nearest folder that names a class, None if none does.
  """

  path: Path
  folder: str | None


def pictures(
  arguments: Sequence[str], classes: Mapping[str, object]
) -> list[Picture]:
  """The images that arguments name, those of a folder in order.

  Args:
    arguments: files and folders.
    classes: by the names that their folders may have.
  """
  found = []
  for argument in arguments:
    path = path_of(argument)
    if path.is_dir():
      inside = _inside(path)
      if not inside:
        raise UserError(
          "image",
          f"{printable(path)} has no image ({' '.join(SUFFIXES)})",
          "name images or a folder of them",
        )
      found += [Picture(file, _folder(path, file, classes)) for file in inside]
    elif path.exists():
      found.append(Picture(path, None))
    else:
      raise UserError(
        "image",
        f"There is no {printable(path)}",
        "name images or folders of them",
      )
  return found


def _inside(directory: Path) -> list[Path]:
  try:
    return sorted(image_files(directory, Counter()))
  except OSError as error:
    raise UserError(
      "image",
      f"{printable(error.filename or directory)} cannot be read"
      f" ({error.strerror})",
      "check its permissions",
    ) from error


def _folder(root, file, classes):
  """The nearest folder above the file, up to the root, that names a class."""
  inside = file.relative_to(root).parent.parts
  for name in reversed((root.resolve().name, *inside)):
    if printable(name) in classes:
      return printable(name)
  return None


# Names of classes. A class has a directory or WordNet id, and a name to show.

_WNID = re.compile(r"n[0-9]{8}")


def class_names(values: FlagValues) -> dict[str, str]:
  """The names in the file of --class_names, by directory."""
  given = values.class_names
  return {} if given is None else read_class_names(path_of(given))


def read_class_names(path: Path) -> dict[str, str]:
  """The names in a file of lines `directory name`, or `directory,name`."""
  try:
    lines = path.read_text(encoding="utf-8").splitlines()
  except (OSError, UnicodeError) as error:
    raise UserError(
      "class_names",
      f"`class_names={path}` cannot be read ({error})",
      "name a text file",
    ) from error
  names = {}
  for number, line in enumerate(lines, 1):
    if not line.strip():
      continue
    found = re.fullmatch(r"\s*([^\s,]+)\s*[\s,]\s*(\S.*?)\s*", line)
    if found is None:
      raise UserError(
        "class_names",
        f"`class_names={path}`: line {number} is not a directory and a name",
        "write lines such as: n01440764 tench",
      )
    names[found[1]] = found[2]
  return names


def rename_classes(
  dataset: Dataset,
  names: Mapping[str, str],
  title: str,
  learned: Collection[str] = (),
) -> Dataset:
  """The data set with a title, and classes called by their names.

  Two classes of the same name also keep their directory's.

  Args:
    dataset: its classes are called by directories.
    names: by directory; those of ImageNet are known.
    title: what to call the data.
    learned: classes that a run knows, which keep the names they have there.
  """
  known = dict(names)
  if all(map(_WNID.fullmatch, dataset.class_names)):
    known = _imagenet() | known
  if learned:
    known |= folders_of(learned, names)
  shown = [known.get(name, name) for name in dataset.class_names]
  pairs = zip(dataset.class_names, shown, strict=True)
  unique = [
    name if shown.count(name) == 1 else f"{name} ({directory})"
    for directory, name in pairs
  ]
  return dataclasses.replace(dataset, name=title, class_names=tuple(unique))


def folders_of(
  learned: Collection[str], names: Mapping[str, str]
) -> dict[str, str]:
  """The learned classes, by each name that a folder of their images may have.

  Args:
    learned: what a run calls the classes that it knows.
    names: by directory; those of ImageNet are known.
  """
  found = {}
  for directory, name in (_imagenet() | dict(names)).items():
    for called in (name, f"{name} ({directory})"):
      if called in learned:
        found[directory] = called
  return found | {name: name for name in learned}


@functools.cache
def _imagenet() -> dict[str, str]:
  """ImageNet's first word for each WordNet id."""
  from tensorflow_datasets.datasets import imagenet2012
  from tensorflow_datasets.datasets.siscore import labels

  ids = (Path(imagenet2012.__path__[0]) / "labels.txt").read_text().split()
  pairs = zip(ids, labels.IMAGENET_LABELS_LIST, strict=True)
  return {wnid: text.split(",")[0] for wnid, text in pairs}
