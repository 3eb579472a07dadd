"""Brings data into the form in which they are learned, without TensorFlow.

  python -m mnemonics_jax.data.prepare --source=cifar-100-python.tar.gz \\
    --data_dir=~/tensorflow_datasets
  python -m mnemonics_jax.data.prepare --dataset=imagenet --source=DIR \\
    --data_dir=~/imagenet

CIFAR-100 takes half a minute. ImageNet is copied file by file, 145 GB in an hour
or less, ImageNet-Subset a tenth of that; the same command goes on after an
interruption, and checks and repairs what is complete.
"""

import re
import sys
import time

from absl import app, flags

from mnemonics_jax.data import cifar_pickle, prepare_cifar100, prepare_imagenet
from mnemonics_jax.data.cifar100 import directory
from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.imagenet_classes import SPLITS, WORLDS
from mnemonics_jax.data.imagenet_files import read_index
from mnemonics_jax.progress import DataReport, Event, Report

DATASETS = ("cifar100", *WORLDS)
_MISTAKE, _INTERRUPTED = 2, 130
_SECONDS_BETWEEN_LINES = 60


def run(
  source: str | None,
  data_dir: str | None,
  dataset: str = "cifar100",
  reduced: bool = False,
) -> int:
  """Prepares, and says what happened; returns the exit code."""
  prepare = _cifar100 if dataset == "cifar100" else _imagenet
  try:
    if reduced and dataset == "cifar100":
      raise DataError(
        "reduced", "`reduced` has no effect on CIFAR-100", "leave it out"
      )
    print(prepare(dataset, source, data_dir, reduced))
  except DataError as error:
    return _refuse(error)
  except KeyboardInterrupt:
    print("\nInterrupted; the same command goes on from here.", file=sys.stderr)
    return _INTERRUPTED
  return 0


def _cifar100(dataset, source, data_dir, reduced) -> str:
  del dataset, reduced
  if not source:
    raise DataError(
      "source",
      "`source` is missing",
      f"get {cifar_pickle.URL} and name it or its unpacked directory",
    )
  target = prepare_cifar100.prepare(source, data_dir, report=_progress())
  return (
    f"CIFAR-100 (50,000 + 10,000 images, read back and equal) is in {target}\n"
    f"Use it with --data_dir={target.parent.parent}"
  )


def _imagenet(dataset, source, data_dir, reduced) -> str:
  if not source:
    raise DataError(
      "source",
      "`source` is missing",
      "name a directory that has ILSVRC2012_img_train.tar and"
      " ILSVRC2012_img_val.tar of image-net.org, or what became of them",
    )
  root = directory(data_dir)
  target = prepare_imagenet.prepare(
    WORLDS[dataset](), source, root, reduced=reduced, report=_progress()
  )
  index = read_index(target)
  train, validation = (f"{len(index.rows[split]):,}" for split in SPLITS)
  part = "A part of " if index.reduced else ""
  kind = "subset" if dataset == "imagenet_subset" else "full"
  return (
    f"{part}{dataset} ({len(index.wnids):,} classes, {train} + {validation}"
    f" images, checked) is in {target}\n"
    f"Use it with python -m experiments.imagenet --{kind} --data_dir={root}"
  )


def _refuse(error: Exception) -> int:
  # These settings are flags of this command.
  names = "source|data_dir|dataset|reduced"
  message = re.sub(rf"`({names})(=[^`]*)?`", r"--\1\2", str(error))
  print(f"error: {message}", file=sys.stderr)
  return _MISTAKE


def _progress() -> Report:
  """Shows how far it is: in place on a terminal, else a line now and then."""
  terminal = sys.stderr.isatty()
  began = shown = time.monotonic()

  def show(event: Event) -> None:
    nonlocal shown
    if not isinstance(event, DataReport):
      return
    done, total = event
    now = time.monotonic()
    wait = 0.5 if terminal else _SECONDS_BETWEEN_LINES
    if now - shown < wait and not (terminal and done == total):
      return
    shown = now
    left = (now - began) * (total - done) / max(done, 1) / 60
    rest = f", about {left:.0f} min left" if left >= 1 else ""
    line = f"{done / total:4.0%}{rest}"
    if terminal:
      end = "\n" if done == total else ""
      print(f"\r{line:<40}", end=end, file=sys.stderr, flush=True)
    else:
      print(line, file=sys.stderr, flush=True)

  return show


if __name__ == "__main__":
  # Defined only here: the experiments have flags of these names of their own.
  flags.DEFINE_enum("dataset", "cifar100", DATASETS, "What to prepare.")
  flags.DEFINE_string(
    "source",
    None,
    "cifar100: the official cifar-100-python directory or its .tar.gz. imagenet,"
    " imagenet_subset: a directory with the official ILSVRC2012_img_train.tar and"
    " ILSVRC2012_img_val.tar, with train/ and val/, with Kaggle's ILSVRC/, or"
    " with imagenet2012/ of TensorFlow Datasets.",
  )
  flags.DEFINE_string(
    "data_dir",
    None,
    "Where to write cifar100/3.0.2, imagenet or imagenet_subset;"
    " $MNEMONICS_DATA_DIR or ~/tensorflow_datasets by default.",
  )
  flags.DEFINE_bool(
    "reduced",
    False,
    "imagenet, imagenet_subset: take the classes and images that are there, even"
    " if some are missing.",
  )

  def parse(argv):
    try:
      return flags.FLAGS(argv)
    except flags.Error as error:
      sys.exit(_refuse(error))

  def main(argv):
    if len(argv) > 1:
      return _refuse(
        DataError(argv[1], f"{argv[1]!r} is not a flag", "see --help")
      )
    values = flags.FLAGS
    return run(values.source, values.data_dir, values.dataset, values.reduced)

  app.run(main, flags_parser=parse)
