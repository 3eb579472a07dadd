"""Names to show for classes that are called by directories or WordNet ids."""

from collections.abc import Mapping
import dataclasses
from pathlib import Path
import re

from mnemonics_jax.data import Dataset
from mnemonics_jax.errors import UserError

_WNID = re.compile(r"n[0-9]{8}")


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


def rename(dataset: Dataset, names: Mapping[str, str], title: str) -> Dataset:
  """The data set with a title, and classes called by their names.

  Two classes of the same name also keep their directory's.
  """
  known = {**_imagenet(dataset.class_names), **names}
  shown = [known.get(name, name) for name in dataset.class_names]
  pairs = zip(dataset.class_names, shown, strict=True)
  unique = [
    name if shown.count(name) == 1 else f"{name} ({directory})"
    for directory, name in pairs
  ]
  return dataclasses.replace(dataset, name=title, class_names=tuple(unique))


def _imagenet(classes):
  """ImageNet's first word for each directory that is named by a WordNet id."""
  if not all(map(_WNID.fullmatch, classes)):
    return {}
  from tensorflow_datasets.datasets import imagenet2012
  from tensorflow_datasets.datasets.siscore import labels

  ids = (Path(imagenet2012.__path__[0]) / "labels.txt").read_text().split()
  pairs = zip(ids, labels.IMAGENET_LABELS_LIST, strict=True)
  return {wnid: text.split(",")[0] for wnid, text in pairs}
