"""Names to show for classes that are called by directories or WordNet ids."""

from collections.abc import Collection, Mapping
import dataclasses
import functools
from pathlib import Path
import re

from absl import flags

from mnemonics_jax.data import Dataset
from mnemonics_jax.errors import UserError

_WNID = re.compile(r"n[0-9]{8}")
_CLASS_NAMES = flags.DEFINE_string(
  "class_names",
  None,
  "A text file with a line for each class: the name of its directory, blanks or a"
  " comma, the name to show. ImageNet's n01440764 and so on are known without it.",
)


def given() -> dict[str, str]:
  """The names in the file of --class_names, by directory."""
  path = _CLASS_NAMES.value
  return {} if path is None else read(Path(path))


def read(path: Path) -> dict[str, str]:
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


def rename(
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
    known |= folders(learned, names)
  shown = [known.get(name, name) for name in dataset.class_names]
  pairs = zip(dataset.class_names, shown, strict=True)
  unique = [
    name if shown.count(name) == 1 else f"{name} ({directory})"
    for directory, name in pairs
  ]
  return dataclasses.replace(dataset, name=title, class_names=tuple(unique))


def folders(
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
