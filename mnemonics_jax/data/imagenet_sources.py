"""Reads ImageNet in each of its usual forms, as a list of parts to copy.

  ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar      as image-net.org has them
  train/<wnid>/*.JPEG and val/*.JPEG or val/<wnid>/     unpacked
  ILSVRC/Data/CLS-LOC/train, val                        as Kaggle has it
  imagenet2012/5.1.0/imagenet2012-train.tfrecord-*      TensorFlow Datasets
  imagenet2012/5.1.0/imagenet2012-train.array_record-*  the same

Archives are not unpacked.
"""

from collections import Counter
from collections.abc import Callable, Iterator
import contextlib
import functools
import os
from pathlib import Path
import tarfile
from typing import NamedTuple

from mnemonics_jax.data import records
from mnemonics_jax.data.dataset import DataError, first_line, printable
from mnemonics_jax.data.imagenet import all_wnids, validation_wnid

TRAIN_TAR = "ILSVRC2012_img_train.tar"
VALIDATION_TAR = "ILSVRC2012_img_val.tar"
_TFDS = "imagenet2012"
_KAGGLE = ("ILSVRC/Data/CLS-LOC", "Data/CLS-LOC", "CLS-LOC")
_TAR_END = 1024  # Bytes, with which every archive ends.
_VALIDATION_PARTS = 50  # Of 1,000 images each.


class Photo(NamedTuple):
  """An image file: its name without directories, its class and its bytes."""

  name: str
  wnid: str
  encoded: bytes


class Part(NamedTuple):
  """Images of a source that are copied together.

  Attributes:
    split: `train` or `validation`.
    name: where they are, for messages.
    state: a text that changes when the images do.
    size: their bytes, about.
    read: yields the images.
    wnids: their classes, if known before reading.
    counts: the number of images of each class, if known before reading.
  """

  split: str
  name: str
  state: str
  size: int
  read: Callable[[], Iterator[Photo]]
  wnids: frozenset[str] | None = None
  counts: Counter[str] | None = None


def parts(source: Path) -> list[Part]:
  """Lists what there is to copy, always in the same order.

  Raises:
    DataError: if this is none of the forms.
  """
  for folder in (source, *(source / below for below in _KAGGLE)):
    if (folder / "train").is_dir() and (folder / "val").is_dir():
      return [*_train_folder(folder / "train"), *_val_folder(folder / "val")]
  if (source / TRAIN_TAR).is_file():
    return _tars(source / TRAIN_TAR, source / VALIDATION_TAR)
  if directory := records.find(source, _TFDS):
    return [
      *_tfds_parts(directory, "train"),
      *_tfds_parts(directory, "validation"),
    ]
  state = "has no ImageNet" if source.is_dir() else "is not a directory"
  raise DataError(
    "source",
    f"`source={source}` {state}",
    f"name one with {TRAIN_TAR} and {VALIDATION_TAR}, with train/<wnid>/ and"
    f" val/, or with {_TFDS}/ of TensorFlow Datasets",
  )


def _damaged(name: str | Path, reason: object) -> DataError:
  return DataError(
    "source",
    f"`source`: {printable(str(name))} is damaged or incomplete"
    f" ({printable(first_line(reason))})",
    "get it again; what has been copied is kept",
  )


# Folders.


def _train_folder(train):
  for folder in _folders(train):
    yield _folder_part("train", folder, _files(folder), folder.name)


def _val_folder(val):
  folders = _folders(val)
  if folders:
    for folder in folders:
      files = _files(folder)
      for name, *_ in files:
        known = validation_wnid(name)
        if known not in (None, folder.name):
          raise DataError(
            "source",
            f"`source`: {printable(folder / name)} is an image of {known}, not of"
            f" {printable(folder.name)}",
            "sort the validation images again, or leave them flat in val/",
          )
      yield _folder_part("validation", folder, files, folder.name)
    return
  for files in _groups(_files(val)):
    yield _folder_part("validation", val, files)


def _folders(folder):
  found = sorted(p for p in folder.iterdir() if p.is_dir())
  found = [path for path in found if not path.name.startswith(".")]
  for path in found:
    if path.name not in all_wnids():
      raise DataError(
        "source",
        f"`source`: {printable(path)} is not named by the WordNet id of a class of"
        " ImageNet",
        "remove it; `python -m experiments.folder` learns classes of any name",
      )
  return found


def _files(folder):
  """Name, size and time of the images, sorted by name."""
  with os.scandir(folder) as entries:
    return sorted(
      (entry.name, stat.st_size, stat.st_mtime_ns)
      for entry in entries
      if entry.name.lower().endswith((".jpeg", ".jpg"))
      and not entry.name.startswith(".")
      for stat in [entry.stat()]
    )


def _folder_part(split, folder, files, wnid=None):
  def read():
    for name, *_ in files:
      label = wnid or _known_validation(folder / name, name)
      yield Photo(name, label, (folder / name).read_bytes())

  return _listed(split, folder, files, read, wnid)


def _listed(split, path, images, read, wnid=None):
  """A part of images that have been listed: their names, sizes and times."""
  wnids = [wnid or validation_wnid(Path(name).name) for name, *_ in images]
  counts = Counter(filter(None, wnids))
  size = sum(size for _, size, _ in images)
  known = frozenset(counts), counts
  return Part(split, str(path), repr(images), size, read, *known)


def _groups(images):
  """Validation images, some at a time."""
  size = -(-len(images) // _VALIDATION_PARTS) or 1
  return [images[at : at + size] for at in range(0, len(images), size)]


def _known_validation(path, name):
  wnid = validation_wnid(name)
  if wnid is None:
    raise DataError(
      "source",
      f"`source`: {printable(str(path))} is not the name of a validation image of"
      " ImageNet, whose class would be known",
      "remove it, or sort the validation images into folders of their classes",
    )
  return wnid


# Archives.


def _tars(train, validation):
  if not validation.is_file():
    raise DataError(
      "source",
      f"`source`: {validation} is missing",
      f"put it beside {train.name}",
    )
  found = []
  for member in _members(train):
    wnid = Path(member.name).stem
    if not member.name.endswith(".tar") or wnid not in all_wnids():
      raise DataError(
        "source",
        f"`source`: {train} has a member {printable(member.name)}, expected"
        " archives such as n01440764.tar",
        f"name the official {TRAIN_TAR}",
      )
    read = functools.partial(_read_class, train, member, wnid)
    state = f"{member.name} {member.size} {member.mtime}"
    name = f"{train}/{member.name}"
    found.append(
      Part("train", name, state, member.size, read, frozenset([wnid]))
    )
  groups = _groups(_members(validation))
  return [*found, *(_validation_part(validation, group) for group in groups)]


def _members(path):
  """The files in an archive, sorted by name; it must have an end."""
  with _opened(path) as archive:
    members = [member for member in archive if member.isfile()]
    if path.stat().st_size - archive.offset < _TAR_END:
      raise tarfile.ReadError("its end is missing")
  return sorted(members, key=lambda member: member.name)


@contextlib.contextmanager
def _opened(path, member=None):
  """An archive within which one can move about."""
  try:
    with tarfile.open(path, "r:") as archive:
      yield archive
  except (tarfile.TarError, EOFError) as error:
    place = f"{path}/{member}" if member else path
    raise _damaged(place, error) from error


def _read_class(path, member, wnid):
  """Images of an archive within the archive, as they come."""
  with (
    _opened(path, member.name) as outer,
    tarfile.open(fileobj=outer.extractfile(member), mode="r|") as inner,
  ):
    for image in inner:
      if image.isfile():
        yield Photo(Path(image.name).name, wnid, _content(inner, image))


def _content(archive, member):
  content = archive.extractfile(member).read()
  if len(content) < member.size:
    raise tarfile.ReadError("unexpected end of data")
  return content


def _validation_part(path, members):
  def read():
    with _opened(path) as archive:
      for member in members:
        name = Path(member.name).name
        wnid = _known_validation(path / name, name)
        yield Photo(name, wnid, _content(archive, member))

  images = [(member.name, member.size, member.mtime) for member in members]
  return _listed("validation", path, images, read)


# TensorFlow Datasets.


def _tfds_parts(directory, split):
  try:
    shards = records.shards(directory, _TFDS, split)
  except DataError as error:
    raise DataError(
      "source", error.problem.replace("`data_dir`", "`source`"), error.fix
    ) from error
  for path in shards:
    stat = path.stat()
    yield Part(
      split,
      str(path),
      f"{path.name} {stat.st_size} {stat.st_mtime_ns}",
      stat.st_size,
      functools.partial(_read_records, path),
    )


def _read_records(path):
  wnids = all_wnids()
  try:
    for record in records.read(path):
      feature = records.features(record)
      (encoded,) = feature["image"].bytes_list.value
      (label,) = feature["label"].int64_list.value
      (name,) = feature["file_name"].bytes_list.value
      yield Photo(name.decode(), wnids[label], encoded)
  except DataError:
    raise
  except Exception as error:  # array_record and protobuf raise anything.
    raise _damaged(path, error) from error
