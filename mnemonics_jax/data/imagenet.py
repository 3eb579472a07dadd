"""ImageNet and ImageNet-Subset from a prepared directory, read during training.

Class names are WordNet ids, sorted. The package TensorFlow Datasets contains a list
of them and the labels of the validation images. These lists are read as files, so
the official development kit is not needed.
"""

from collections.abc import Callable, Mapping
import functools
import importlib.util
import os
from pathlib import Path
import re
from typing import NamedTuple

import numpy as np

from mnemonics_jax import protocol
from mnemonics_jax.data.dataset import (
  MEAN,
  STD,
  DataError,
  Dataset,
  check_image_size,
  data_directory,
)
from mnemonics_jax.data.images import Stored
from mnemonics_jax.data.shards import (
  SPLITS,
  Photographs,
  Shards,
  is_begun,
  read_index,
)
from mnemonics_jax.data.share import Share
from mnemonics_jax.data.views import DECODERS
from mnemonics_jax.data.workers import Pool
from mnemonics_jax.progress import Report, ignore

_VALIDATION_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")


class World(NamedTuple):
  """The classes and image counts of ImageNet or a part of it.

  Attributes:
    name: name of the data set.
    wnids: WordNet ids of its classes, sorted.
    least: the fewest images a class may have in each split.
    most: the most images a class may have in each split; None for any number.
    total: number of images of a split, where it is known.
    reduced: whether the user asked for a part of the data set.
  """

  name: str
  wnids: tuple[str, ...]
  least: Mapping[str, int]
  most: Mapping[str, int | None]
  total: Mapping[str, int]
  reduced: bool = False

  def only(self, present: set[str]) -> "World":
    """The classes that are present, with any number of images."""
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
  """The 100 classes that Hou et al. and Liu et al. have drawn.

  They are sorted again, because labels are numbers of sorted classes. The seed 1993
  then shuffles them a second time (`protocol.class_order`).
  """
  wnids = all_wnids()
  drawn = protocol.class_subset(len(wnids), size)
  chosen = tuple(sorted(wnids[i] for i in drawn))
  total = {"validation": size * _LEAST["validation"]}
  return World("imagenet_subset", chosen, _LEAST, _MOST, total)


WORLDS = {"imagenet": imagenet, "imagenet_subset": imagenet_subset}
"""Makes the complete data sets, by name."""


@functools.cache
def all_wnids() -> tuple[str, ...]:
  """The 1,000 WordNet ids, sorted."""
  return tuple(_lines("labels.txt"))


@functools.cache
def validation_labels() -> tuple[str, ...]:
  """The classes of the 50,000 validation images, in the order of their numbers."""
  return tuple(_lines("validation_labels.txt"))


def validation_wnid(file_name: str) -> str | None:
  """The class of a validation image; None if this is not the name of one."""
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


_MOST_WORKERS = 1024


def load(
  data_dir: str | os.PathLike | None = None,
  *,
  world: Callable[[], World] = imagenet,
  image_size: int = 224,
  decoder: str = "pillow",
  workers: int = os.cpu_count() or 1,
  cache_dir: str | os.PathLike | None = None,
  report: Report = ignore,
  share: Share = Share(),
) -> Dataset:
  """Finds a prepared directory; reads no image yet.

  Args:
    data_dir: a directory that `python -m mnemonics_jax.data.prepare` has written;
      by default `$MNEMONICS_DATA_DIR`, then `~/tensorflow_datasets`.
    world: the classes. A directory of ImageNet contains ImageNet-Subset.
    image_size: side of the square views, 224 in the papers.
    decoder: one of `views.DECODERS`.
    workers: processes that read and decode, by default one per core. With 0, the
      caller's process does it.
    cache_dir: not used.
    report: not used.
    share: processes that must all see the same directory.
  """
  del cache_dir, report
  _check_options(image_size, decoder, workers)
  complete = world()
  index = read_index(_find(data_directory(data_dir), complete.name))
  share.check_equal(
    (index.rows[split].tobytes() for split in SPLITS),
    f"`data_dir`: {index.directory} has other images",
  )
  names = tuple(wnid for wnid in complete.wnids if wnid in index.wnids)
  shards = Shards(index.directory, index.files, image_size, decoder)
  views = Pool(shards, workers).views if workers else shards.views
  splits = {}
  for split in SPLITS:
    table, labels = _chosen(index, split, names)
    stored = Photographs(views, table, image_size)
    splits[split] = Stored(stored, np.arange(len(table))), labels
  return Dataset(
    complete.name,
    *splits["train"],
    *splits["validation"],
    class_names=names,
    mean=MEAN,
    std=STD,
    departures=_departures(index, complete, splits),
  )


def _find(root: Path, name: str) -> Path:
  """Finds the prepared directory of a data set."""
  for prepared in (root / name, root / "imagenet", root):
    if is_begun(prepared):
      return prepared
  state = "has no prepared ImageNet" if root.is_dir() else "does not exist"
  raise DataError(
    "data_dir",
    f"`data_dir={root}` {state}",
    "make one of the official archives, an unpacked copy or that of TensorFlow"
    " Datasets (python -m mnemonics_jax.data.prepare)",
  )


def _chosen(index, split, names):
  """Rows of the classes with these names, and their labels among them."""
  rows = index.rows[split]
  label = np.full(len(index.wnids), -1, np.int32)
  for new, name in enumerate(names):
    label[index.wnids.index(name)] = new
  labels = label[rows["label"]]
  return rows[labels >= 0], labels[labels >= 0]


def _departures(index, complete, splits):
  """Says how much of the data set a reduced directory has."""
  if not index.reduced:
    return ()
  train, validation = (f"{len(splits[split][1]):,}" for split in SPLITS)
  classes = len(np.unique(splits["train"][1]))
  return (
    f"a part of the data: {classes} of {len(complete.wnids):,} classes,"
    f" {train} training and {validation} test images",
  )


def _check_options(image_size, decoder, workers):
  check_image_size(image_size)
  if decoder not in DECODERS:
    raise DataError(
      "decoder",
      f"`decoder={decoder}` is not known",
      f"choose {' or '.join(DECODERS)}",
    )
  if decoder == "simplejpeg" and not importlib.util.find_spec("simplejpeg"):
    raise DataError(
      "decoder",
      "`decoder=simplejpeg` is not installed",
      "pip install simplejpeg, or leave it out",
    )
  if not 0 <= workers <= _MOST_WORKERS:
    raise DataError(
      "workers",
      f"`workers={workers}` cannot be used",
      f"choose 0 to {_MOST_WORKERS} processes",
    )


load_subset = functools.partial(load, world=imagenet_subset)
