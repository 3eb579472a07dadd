"""Turns the official CIFAR-100 files into a TFDS directory, without TensorFlow.

The result is what `tfds.data_source("cifar100")` reads: array_record files of
PNG images with the ids that TensorFlow Datasets gives them. Takes half a minute.
"""

from collections.abc import Callable, Mapping
import io
import os
from pathlib import Path
import shutil
import tempfile

import numpy as np

from mnemonics_jax.data import cifar100, cifar_pickle, tfds_records
from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.progress import DataReport, Event, Report, ignore

VERSION = "3.0.2"  # Of the TFDS data set that this is a copy of.


def prepare(
  source: str | os.PathLike,
  data_dir: str | os.PathLike | None = None,
  *,
  md5: Mapping[str, str] = cifar_pickle.MD5,
  report: Report = ignore,
) -> Path:
  """Writes `data_dir/cifar100/3.0.2` from the official directory or archive.

  The directory appears complete or not at all, and only after everything in it
  has been read back and found equal to the source.

  Args:
    source: `cifar-100-python`, its `.tar.gz`, or a directory that has one.
    data_dir: where to write; the default of `cifar100.directory`.
    md5: sums that the files in `source` must have.
    report: hears how many images have been written and read back.

  Returns:
    The new directory.
  """
  origin = cifar_pickle.find(Path(os.path.expanduser(source)))
  if origin is None:
    raise DataError(
      "source",
      f"`source={source}` is neither {cifar_pickle.FOLDER}/ nor"
      f" {cifar_pickle.FOLDER}.tar.gz",
      f"get {cifar_pickle.URL} and name it",
    )
  root = cifar100.directory(data_dir)
  target = root / "cifar100" / VERSION
  if target.exists():
    raise DataError(
      "data_dir",
      f"`data_dir={root}`: {target} exists and is left as it is",
      "remove it or choose another directory",
    )
  data = cifar_pickle.read(origin, md5=md5, field="source")
  temporary = None
  try:
    root.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(".incomplete", "cifar100.", root))
    # mkdtemp keeps others out; data directories are often shared.
    temporary.chmod(0o755)
    total = 2 * (len(data.train.images) + len(data.test.images))
    tell = lambda done: report(DataReport(done, total))
    _write(data, temporary, tell)
    _compare(data, temporary, lambda done: tell(total // 2 + done))
    target.parent.mkdir(exist_ok=True)
    temporary.rename(target)
  except (OSError, RuntimeError) as error:  # array_record raises the latter.
    raise DataError(
      "data_dir",
      f"`data_dir={root}`: cannot write there ({str(error).splitlines()[0]})",
      "free space or choose another directory",
    ) from error
  finally:
    if temporary:
      shutil.rmtree(temporary, ignore_errors=True)
  return target


def _write(
  data: cifar_pickle.Cifar100, directory: Path, tell: Callable[[int], None]
) -> None:
  import tensorflow_datasets as tfds

  features = tfds.features.FeaturesDict(
    {
      "id": tfds.features.Text(),
      "image": tfds.features.Image(shape=(32, 32, 3)),
      "label": tfds.features.ClassLabel(names=data.class_names),
      "coarse_label": tfds.features.ClassLabel(names=data.coarse_names),
    }
  )
  done = 0
  splits = []
  for name in ("train", "test"):
    split = getattr(data, name)
    path = directory / f"cifar100-{name}.array_record-00000-of-00001"
    size = _write_records(path, name, split, lambda n, d=done: tell(d + n))
    done += len(split.images)
    splits.append(
      tfds.core.SplitInfo(
        name=name, shard_lengths=[len(split.images)], num_bytes=size
      )
    )
  tfds.folder_dataset.write_metadata(
    data_dir=directory,
    features=features,
    split_infos=splits,
    version=VERSION,
    check_data=False,  # That would need TensorFlow.
    description="CIFAR-100: 32×32 images of 100 classes, 600 of each.",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    supervised_keys=("image", "label"),
  )


def _write_records(
  path: Path,
  name: str,
  split: cifar_pickle.Split,
  tell: Callable[[int], None],
) -> int:
  """Writes one split; returns the bytes of its records."""
  from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]
  from PIL import Image
  from tensorflow_datasets.proto import tf_example_pb2

  size = 0
  writer = array_record_module.ArrayRecordWriter(str(path), "group_size:1")
  try:
    for i, image in enumerate(split.images):
      png = io.BytesIO()
      Image.fromarray(image).save(png, "PNG")
      example = tf_example_pb2.Example()  # pyright: ignore[reportAttributeAccessIssue]
      feature = example.features.feature
      feature["id"].bytes_list.value.append(f"{name}_{i:05d}".encode())
      feature["image"].bytes_list.value.append(png.getvalue())
      feature["label"].int64_list.value.append(int(split.labels[i]))
      coarse = int(split.coarse_labels[i])
      feature["coarse_label"].int64_list.value.append(coarse)
      record = example.SerializeToString(deterministic=True)
      writer.write(record)
      size += len(record)
      tell(i + 1)
  finally:
    writer.close()
  return size


def _compare(
  data: cifar_pickle.Cifar100, directory: Path, tell: Callable[[int], None]
) -> None:
  def hear(event: Event) -> None:
    if isinstance(event, DataReport):
      tell(event.done)

  arrays, names = tfds_records.read(directory, hear)
  for split in ("train", "test"):
    expected = getattr(data, split)
    same_images = np.array_equal(arrays[f"{split}_images"], expected.images)
    same_labels = np.array_equal(arrays[f"{split}_labels"], expected.labels)
    if not (same_images and same_labels and names == data.class_names):
      raise DataError(
        "data_dir",
        f"What was written for {split} differs from what was read, and nothing"
        " was kept",
        "check the disk behind `data_dir`",
      )
