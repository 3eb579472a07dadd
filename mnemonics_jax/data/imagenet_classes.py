"""Which classes ImageNet and ImageNet-Subset have, and how many images of each.

Classes are called by their WordNet ids, and sorted by them. TensorFlow Datasets
has lists of them and of the labels of the validation images, so that nothing of
the official development kit is needed; they are read as files, without it.
"""

from collections.abc import Mapping
import functools
import importlib.util
from pathlib import Path
import re
from typing import NamedTuple

from mnemonics_jax import protocol
from mnemonics_jax.data.dataset import DataError

SPLITS = ("train", "validation")
_VALIDATION_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")


class World(NamedTuple):
  """What a form of ImageNet has when it is complete.

  >>> WORLDS["imagenet_subset"]().wnids[:2]
  ('n01514668', 'n01531178')

  Attributes:
    name: of the data set.
    wnids: WordNet ids of its classes, sorted.
    least: images of a class, at least, in each split; 1 in a reduced world.
    most: images of a class, at most, in each split; None for any number.
    total: all images of a split, where the number is known.
    reduced: whether it is a part that somebody has asked for.
  """

  name: str
  wnids: tuple[str, ...]
  least: Mapping[str, int]
  most: Mapping[str, int | None]
  total: Mapping[str, int]
  reduced: bool = False

  def only(self, present: set[str]) -> "World":
    """The part of it that is there, whatever there is of each class."""
    return World(
      self.name,
      tuple(wnid for wnid in self.wnids if wnid in present),
      dict.fromkeys(SPLITS, 1),
      dict.fromkeys(SPLITS),
      {},
      reduced=True,
    )


# Russakovsky et al., ImageNet Large Scale Visual Recognition Challenge, Table 2.
_LEAST = {"train": 732, "validation": 50}
_MOST = {"train": 1300, "validation": 50}
_TOTAL = {"train": 1_281_167, "validation": 50_000}


def imagenet() -> World:
  """All of ILSVRC 2012: 1,000 classes."""
  return World("imagenet", all_wnids(), _LEAST, _MOST, _TOTAL)


def imagenet_subset(size: int = 100) -> World:
  """100 classes: those that Hou et al. and Liu et al. have drawn.

  Sorted again: labels are numbers of sorted classes, which the seed 1993 then
  shuffles a second time (`protocol.class_order`) for the order of learning.
  """
  wnids = all_wnids()
  drawn = protocol.class_subset(len(wnids), size)
  chosen = tuple(sorted(wnids[i] for i in drawn))
  total = {"validation": size * _LEAST["validation"]}
  return World("imagenet_subset", chosen, _LEAST, _MOST, total)


WORLDS = {"imagenet": imagenet, "imagenet_subset": imagenet_subset}
"""The complete ones by name."""


@functools.cache
def all_wnids() -> tuple[str, ...]:
  """The 1,000 WordNet ids, sorted.

  >>> all_wnids()[:2], len(all_wnids())
  (('n01440764', 'n01443537'), 1000)
  """
  return tuple(_lines("labels.txt"))


@functools.cache
def validation_labels() -> tuple[str, ...]:
  """The classes of the 50,000 validation images, in the order of their numbers.

  >>> len(validation_labels())
  50000
  """
  return tuple(_lines("validation_labels.txt"))


def validation_wnid(file_name: str) -> str | None:
  """The class of a validation image; None if this is not the name of one.

  >>> validation_wnid("ILSVRC2012_val_00000001.JPEG")
  'n01751748'
  """
  found = _VALIDATION_NAME.fullmatch(file_name)
  labels = validation_labels()
  number = int(found[1]) if found else 0
  return labels[number - 1] if 0 < number <= len(labels) else None


def _lines(name):
  # Found, not imported: importing takes seconds.
  package = importlib.util.find_spec("tensorflow_datasets")
  folders = package.submodule_search_locations if package else None
  for folder in folders or ():
    path = Path(folder) / "datasets/imagenet2012" / name
    if path.exists():
      return path.read_text().split()
  raise DataError(
    "dataset",
    f"The list {name} of ImageNet's classes, which TensorFlow Datasets has, is"
    " missing",
    "install tensorflow-datasets again",
  )
