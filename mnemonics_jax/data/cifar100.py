"""CIFAR-100 from whichever form of it is at hand."""

from collections.abc import Mapping
import os
from pathlib import Path

import numpy as np

from mnemonics_jax.data import cifar_pickle, tfds_records
from mnemonics_jax.data.cache import cached
from mnemonics_jax.data.dataset import DataError, Dataset, verify
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import Report, ignore

_MEAN = (0.5071, 0.4866, 0.4409)
_STD = (0.2009, 0.1984, 0.2023)
PER_CLASS = {"train": 500, "test": 100}


def load(
  data_dir: str | os.PathLike | None = None,
  *,
  download: bool = False,
  cache_dir: str | os.PathLike | None = None,
  report: Report = ignore,
  share: Share = Share(),
  md5: Mapping[str, str] = cifar_pickle.MD5,
  per_class: Mapping[str, int] = PER_CLASS,
) -> Dataset:
  """Finds CIFAR-100 in a directory and reads it, once; then from the cache.

  Args:
    data_dir: a TFDS directory, the official archive or its unpacked directory,
      or a directory that has one of them. By default `$MNEMONICS_DATA_DIR`,
      then `~/tensorflow_datasets`.
    download: whether to fetch from the network what is not there.
    cache_dir: where decoded arrays are kept.
    report: hears how far decoding has come.
    share: which records this process decodes.
    md5: sums that the official files must have.
    per_class: how many images of each class each split must have.
  """
  root = directory(data_dir)
  if download:
    share.first_process_first(lambda: _download(root, report))
  source = _find(root)
  if source is None:
    raise _not_found(root)
  module, path = source
  if not share.all_equal([module.__name__.encode()]):
    raise DataError(
      "data_dir",
      f"`data_dir={root}` has another form of CIFAR-100 on another machine",
      "all must see the same",
    )

  def build() -> Dataset:
    if module is tfds_records:
      arrays, names = tfds_records.read(path, report, share)
    else:
      data = cifar_pickle.read(path, md5=md5)
      names = data.class_names
      arrays = {
        "train_images": data.train.images,
        "train_labels": data.train.labels,
        "test_images": data.test.images,
        "test_labels": data.test.labels,
      }
    dataset = verify(
      Dataset(
        name="cifar100",
        train_images=arrays["train_images"],
        train_labels=arrays["train_labels"],
        test_images=arrays["test_images"],
        test_labels=arrays["test_labels"],
        class_names=names,
        mean=_MEAN,
        std=_STD,
      ),
      f"`data_dir`: {path}",
    )
    _check_counts(dataset, path, per_class)
    return dataset

  return cached(
    build,
    identity=("cifar100", str(path.resolve())),
    files=module.files(path),
    cache_dir=cache_dir,
    share=share,
  )


def directory(data_dir: str | os.PathLike | None) -> Path:
  """Where CIFAR-100 is looked for: `data_dir`, or a default if it is empty."""
  chosen = data_dir or os.environ.get("MNEMONICS_DATA_DIR")
  return Path(os.path.expanduser(chosen or "~/tensorflow_datasets"))


def _download(root: Path, report: Report) -> None:
  from mnemonics_jax.data import download

  if _find(root) is None:
    download.cifar100(root, report)


def _find(root: Path):
  for module in (tfds_records, cifar_pickle):
    if path := module.find(root):
      return module, path
  return None


def _check_counts(
  dataset: Dataset, path: Path, per_class: Mapping[str, int]
) -> None:
  for split, expected in per_class.items():
    counts = np.bincount(getattr(dataset, f"{split}_labels"))
    if len(counts) != 100 or np.any(counts != expected):
      raise DataError(
        "data_dir",
        f"`data_dir`: {path} is not all of CIFAR-100: it has {len(counts)}"
        f" classes with {counts.min()} to {counts.max()} {split} images each,"
        f" expected 100 with {expected}",
        "make it again from the official archive"
        " (python -m mnemonics_jax.data.prepare)",
      )


def _not_found(root: Path) -> DataError:
  state = "does not exist"
  if root.exists():
    readable = os.access(root, os.R_OK | os.X_OK)
    state = "has no CIFAR-100" if readable else "cannot be read"
  return DataError(
    "data_dir",
    f"`data_dir={root}` {state}",
    f"""it should hold one of
  cifar100/VERSION/cifar100-train.array_record-*   (TensorFlow Datasets)
  cifar-100-python/{{train,test,meta}}               (official, unpacked)
  cifar-100-python.tar.gz                          (official archive)
Three ways to provide it:
  1. `data_dir=DIR` (or MNEMONICS_DATA_DIR) names a directory that has one of them;
  2. put {cifar_pickle.URL} into {root}
     (python -m mnemonics_jax.data.prepare turns it into the first form);
  3. `download` fetches it through TensorFlow Datasets (pip install -e '.[tf]')""",
  )
