"""ImageNet from a prepared directory: images are read when they are needed."""

from collections.abc import Callable
import importlib.util
import os
from pathlib import Path

import numpy as np

from mnemonics_jax.data import (
  cifar100,
  imagenet_classes,
  imagenet_files,
  photographs,
)
from mnemonics_jax.data.dataset import DataError, Dataset
from mnemonics_jax.data.imagenet_classes import SPLITS, World
from mnemonics_jax.data.images import Stored
from mnemonics_jax.data.shards import Photographs, Shards
from mnemonics_jax.data.share import Share
from mnemonics_jax.data.workers import Pool
from mnemonics_jax.progress import Report, ignore

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_MIN_SIZE, _MAX_SIZE = 8, 1024
_MOST_WORKERS = 1024


def load(
  data_dir: str | os.PathLike | None = None,
  *,
  world: Callable[[], World] = imagenet_classes.imagenet,
  image_size: int = 224,
  decoder: str = "pillow",
  workers: int = os.cpu_count() or 1,
  cache_dir: str | os.PathLike | None = None,
  report: Report = ignore,
  share: Share = Share(),
) -> Dataset:
  """Finds a prepared directory; of images, nothing is read yet.

  Args:
    data_dir: where `python -m mnemonics_jax.data.prepare` has written; by
      default `$MNEMONICS_DATA_DIR`, then `~/tensorflow_datasets`.
    world: which classes; a directory of all of ImageNet has those of
      ImageNet-Subset, too.
    image_size: side of the square views, 224 in the papers.
    decoder: one of `photographs.DECODERS`.
    workers: processes that read and decode, by default one per core; with 0 the
      caller does it.
    cache_dir: not used: nothing is decoded beforehand.
    report: not used.
    share: processes, all of which must see the same directory.
  """
  del cache_dir, report
  _check_options(image_size, decoder, workers)
  complete = world()
  index = imagenet_files.read_index(
    _find(cifar100.directory(data_dir), complete.name)
  )
  if not share.all_equal(index.rows[split].tobytes() for split in SPLITS):
    raise DataError(
      "data_dir",
      f"`data_dir`: {index.directory} has other images on another machine",
      "all must see the same",
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
  """The prepared directory that has a data set."""
  for directory in (root / name, root / "imagenet", root):
    if imagenet_files.is_begun(directory):
      return directory
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
  """What a directory lacks that somebody wanted reduced."""
  if not index.reduced:
    return ()
  train, validation = (f"{len(splits[split][1]):,}" for split in SPLITS)
  classes = len(np.unique(splits["train"][1]))
  return (
    f"a part of the data: {classes} of {len(complete.wnids):,} classes,"
    f" {train} training and {validation} test images",
  )


def _check_options(image_size, decoder, workers):
  if not _MIN_SIZE <= image_size <= _MAX_SIZE:
    raise DataError(
      "image_size",
      f"`image_size={image_size}` cannot be used",
      f"choose {_MIN_SIZE} to {_MAX_SIZE} pixels",
    )
  if decoder not in photographs.DECODERS:
    raise DataError(
      "decoder",
      f"`decoder={decoder}` is not known",
      f"choose {' or '.join(photographs.DECODERS)}",
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
