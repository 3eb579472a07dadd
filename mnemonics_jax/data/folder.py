"""A directory of images: `train/<class>/*.jpg`, with `val/` or without."""

import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import os
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from mnemonics_jax.data.cache import cached
from mnemonics_jax.data.dataset import (
  MEAN,
  STD,
  DataError,
  Dataset,
  check_image_size,
  printable,
  verify,
)
from mnemonics_jax.data.images import Images, Stored
from mnemonics_jax.data.reading import ImageFiles, examine, read_images
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import Report, ignore


class Paths(Sequence[Path]):
  """Paths below a directory; each is made when it is asked for.

  A list of `Path` takes some 600 bytes for each, which is a tenth of a small
  image.

  Args:
    root: the directory.
  """

  def __init__(self, root: Path):
    self._root = root
    self._names, self._ends = bytearray(), array.array("q", [0])

  def extend(self, paths: Iterable[Path]) -> None:
    """Adds paths, in this order."""
    for path in paths:
      self._names += os.fsencode(path.relative_to(self._root))
      self._ends.append(len(self._names))

  def __len__(self) -> int:
    return len(self._ends) - 1

  @overload
  def __getitem__(self, index: int) -> Path: ...

  @overload
  def __getitem__(self, index: slice) -> list[Path]: ...

  def __getitem__(self, index):
    if isinstance(index, slice):
      return [self[at] for at in range(*index.indices(len(self)))]
    at = range(len(self))[index]
    name = self._names[self._ends[at] : self._ends[at + 1]]
    return self._root / os.fsdecode(bytes(name))


LAYOUT = "train/<class>/*.jpg"
SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".webp")


class Listing(NamedTuple):
  """The image files of a directory, sorted by split, class and name.

  Attributes:
    root: the directory.
    classes: names of the class directories, sorted.
    files: all images.
    labels: index into `classes` of each file.
    is_test: which files are in `val/`; None if there is no such directory.
    notes: sentences for the user about files that were left out or listed twice.
  """

  root: Path
  classes: list[str]
  files: Paths
  labels: np.ndarray
  is_test: np.ndarray | None
  notes: tuple[str, ...]


def scan(root: Path, least: int = 2) -> Listing:
  """Lists the images of `root`, which must have classes and no empty one.

  Args:
    root: the directory.
    least: how many classes it must have.
  """
  if not root.is_dir():
    state = "is not a directory" if root.exists() else "does not exist"
    raise DataError(
      "data_dir", f"`data_dir={root}` {state}", f"name one with {LAYOUT}"
    )
  validation = [root / name for name in ("val", "test")]
  validation = [path for path in validation if path.is_dir()]
  train = root / "train"
  if not train.is_dir():
    if validation:
      raise DataError(
        "data_dir",
        f"`data_dir={root}` has {validation[0].name}/ but no train/",
        f"name a directory with {LAYOUT}",
      )
    train = root  # The classes themselves.
  skipped: Counter[str] = Counter()
  files = Paths(root)
  found = _classes(train, skipped, files)
  if len(found) < least:
    raise DataError(
      "data_dir",
      f"`data_dir={root}`: {train} has {len(found)} class directories, at least"
      f" {least} are needed",
      f"sort the images into {LAYOUT}",
    )
  classes = list(found)
  splits = [found]
  if validation:
    held = _classes(validation[0], skipped, files)
    if different := sorted(held.keys() ^ found.keys()):
      listed = ", ".join(map(printable, different[:5]))
      raise DataError(
        "data_dir",
        f"`data_dir={root}`: train/ and {validation[0].name}/ must have the same"
        f" classes, but only one of them has {listed}",
        f"add or remove them, or move {validation[0].name}/ away to hold out"
        " `val_fraction` of train/",
      )
    splits.append(held)
  counts = [split[name] for split in splits for name in classes]
  labels = np.tile(np.arange(len(classes), dtype=np.int32), len(splits))
  is_test = np.arange(len(files)) >= sum(found.values())
  return Listing(
    root=root,
    classes=classes,
    files=files,
    labels=np.repeat(labels, counts),
    is_test=is_test if validation else None,
    notes=(*_unread(skipped), *_twice(train, validation[:1])),
  )


def _unread(skipped):
  """Notes the files that were left out for their suffix."""
  if skipped:
    kinds = [
      f"{n} {printable(s) or 'without'}" for s, n in skipped.most_common()
    ]
    yield (
      f"{skipped.total():,} files are left out for their suffix:"
      f" {', '.join(kinds[:5])}{', ...' if kinds[5:] else ''}; {LAYOUT} may be"
      f" {' '.join(SUFFIXES)}."
    )


def _twice(train, validation):
  """Notes a validation directory that is the training directory."""
  for path in validation:
    if path.samefile(train):
      yield (
        f"{path.name}/ is the same directory as train/: accuracies are those on"
        " training images."
      )


_SPLITS = {"train", "training", "val", "valid", "validation", "test", "images"}
_MANY = 2000


def odd(classes: list[str]) -> tuple[str, ...]:
  """Notes names of directories that are probably not classes."""
  notes = []
  if splits := [name for name in classes if name.lower() in _SPLITS]:
    notes.append(
      f"{' and '.join(map(printable, splits))} {'are' if splits[1:] else 'is'}"
      f" taken for {'classes' if splits[1:] else 'a class'}; is data_dir one"
      " level too high?"
    )
  if len(classes) > _MANY:
    notes.append(
      f"there are {len(classes):,} class directories; is every image in one of"
      " its own?"
    )
  return tuple(notes)


def _classes(
  directory: Path, skipped: Counter[str], files: Paths
) -> dict[str, int]:
  """Adds the images to `files`; returns how many each class has."""
  classes = {}
  for path in sorted(directory.iterdir()):
    if path.name.startswith(".") or not path.is_dir():
      continue
    # A class may be a link to where its images are, but not to its own parent.
    if directory.resolve().is_relative_to(path.resolve()):
      continue
    images = sorted(image_files(path, skipped))
    files.extend(images)
    classes[path.name] = len(images)
    if not images:
      raise DataError(
        "data_dir",
        f"`data_dir`: class directory {printable(path)} has no image"
        f" ({' '.join(SUFFIXES)})",
        "add some or remove it",
      )
  return classes


def image_files(directory: Path, skipped: Counter[str]) -> Iterator[Path]:
  """The images below a directory, in any order.

  Args:
    directory: hidden ones in it are not looked into.
    skipped: counts suffixes of files that are no images.
  """

  def fail(error: OSError):
    raise error

  # Links to directories are not followed: they may lead in circles.
  for folder, subfolders, names in os.walk(directory, onerror=fail):
    subfolders[:] = [name for name in subfolders if not name.startswith(".")]
    for name in names:
      if name.startswith("."):
        continue
      if name.lower().endswith(SUFFIXES):
        yield Path(folder, name)
      else:
        skipped[Path(name).suffix.lower()] += 1


def load(
  data_dir: str | os.PathLike | None,
  *,
  image_size: int = 64,
  val_fraction: float = 0.2,
  strict: bool = False,
  seed: int = 0,
  least_classes: int = 2,
  stream: str = "auto",
  cache_dir: str | os.PathLike | None = None,
  report: Report = ignore,
  share: Share = Share(),
) -> Dataset:
  """Reads a directory of images.

  Args:
    data_dir: the directory.
    image_size: side of the square that images are resized and cropped to.
    val_fraction: part of each class that is held out if there is no `val/`.
    strict: whether an unreadable image is an error, or skipped with a note.
    seed: decides which images are held out.
    least_classes: how many there must be; one is enough to extend a run.
    stream: `never` decodes all images now, `always` each one when it is needed,
      `auto` now if they fit into memory.
    cache_dir: keeps decoded arrays.
    report: is called with the progress of decoding.
    share: the images that this process decodes.
  """
  _check_options(data_dir, image_size, val_fraction)
  root = Path(os.path.expanduser(data_dir or ""))
  listing = scan(root, least_classes)
  share.check_equal(
    (os.fsencode(file.relative_to(root)) for file in listing.files),
    f"`data_dir={root}` has other files",
  )

  shape = image_size, image_size, 3
  read: dict[str, Any] = dict(report=report, share=share)
  keep = functools.partial(
    cached, files=listing.files, cache_dir=cache_dir, share=share
  )

  def build(images: Images, problems: Sequence[str]) -> Dataset:
    options = val_fraction, seed, strict
    dataset = _build(root, listing, images, problems, *options)
    return verify(dataset, f"`data_dir={root}`", least_classes)

  place = str(root.resolve()), image_size
  if share.all_true(_fits(root, len(listing.files), image_size, stream)):
    dataset = keep(
      lambda: build(*read_images(listing.files, shape, **read)),
      identity=("folder", *place, val_fraction, seed, strict),
    )
  else:
    found = keep(
      lambda: _Looked.of(*examine(listing.files, shape, **read)),
      kind=_Looked,
      identity=("folder_index", *place),
    )
    store = ImageFiles(listing.files, shape, found.checksums)
    images = Stored(store, np.arange(len(listing.files)))
    dataset = build(images, found.problems)
    notes = (*dataset.notes, *found.notes)
    dataset = dataclasses.replace(dataset, notes=notes)
  # Not part of the cache entry: these are about files that were not read.
  notes = (*listing.notes, *dataset.notes)
  return dataclasses.replace(dataset, notes=notes)


@dataclasses.dataclass(frozen=True)
class _Looked:
  """Checksums of images that were decoded once and not kept.

  Attributes:
    checksums: CRC-32 of each image.
    bad: numbers of the files that are no images.
    reasons: what is wrong with each of them.
    notes: of the cache.
  """

  checksums: np.ndarray
  bad: np.ndarray
  reasons: tuple[str, ...]
  notes: tuple[str, ...] = ()

  @classmethod
  def of(cls, checksums: np.ndarray, problems: Sequence[str]) -> "_Looked":
    bad = [number for number, problem in enumerate(problems) if problem]
    reasons = tuple(problems[number] for number in bad)
    return cls(checksums, np.array(bad, np.int64), reasons)

  @property
  def problems(self) -> list[str]:
    """What is wrong with each file, '' if nothing."""
    problems = [""] * len(self.checksums)
    for number, reason in zip(self.bad, self.reasons, strict=True):
      problems[number] = reason
    return problems


def _check_options(data_dir, image_size, val_fraction):
  if not data_dir:
    raise DataError(
      "data_dir", "`data_dir` is missing", f"name a directory with {LAYOUT}"
    )
  check_image_size(image_size)
  if not 0 < val_fraction < 1:
    raise DataError(
      "val_fraction",
      f"`val_fraction={val_fraction}` cannot be used",
      "choose a part between 0 and 1, such as 0.2",
    )


def _build(root, listing, images, problems, val_fraction, seed, strict):
  """Makes a data set of the images that could be read."""
  notes = tuple(
    f"unreadable {printable(path.relative_to(root))}: {problem}"
    for path, problem in zip(listing.files, problems, strict=True)
    if problem
  )
  if notes and strict:
    raise DataError(
      "strict",
      f"`data_dir={root}` has {len(notes)} unreadable files",
      "repair or remove them, or leave out `strict`:\n" + "\n".join(notes),
    )
  readable = np.array([not problem for problem in problems])
  test = listing.is_test
  if test is None:
    test = _hold_out(listing, readable, val_fraction, seed)
  train = readable & ~test
  test = readable & test
  for split, mask in (("training", train), ("test", test)):
    counts = np.bincount(listing.labels[mask], minlength=len(listing.classes))
    for name, count in zip(listing.classes, counts, strict=True):
      if not count:
        named = f"/{printable(name)}/"
        reason = next((f" ({note})" for note in notes if named in note), "")
        raise DataError(
          "data_dir",
          f"`data_dir={root}`: class {printable(name)} has no readable {split}"
          f" image{reason}",
          "add some or remove the class",
        )
  return Dataset(
    name="folder",
    train_images=images[train],
    train_labels=listing.labels[train],
    test_images=images[test],
    test_labels=listing.labels[test],
    class_names=tuple(map(printable, listing.classes)),
    mean=MEAN,
    std=STD,
    notes=(*odd(listing.classes), *notes),
    departures=(
      "images cut to squares beforehand (paper: random parts of whole ones)",
    ),
  )


def _fits(root: Path, count: int, size: int, stream: str) -> bool:
  """Whether to keep all images in memory."""
  if stream == "always":
    return False
  if not hasattr(os, "sysconf"):  # Windows.
    return True
  available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  needed = 2 * count * size * size * 3  # Once whole, once as train and test.
  if stream == "never" and needed > available:
    raise DataError(
      "stream",
      f"`stream=never`: the {count:,} images of {root} need"
      f" {needed / 1e9:.0f} GB of memory, this machine has"
      f" {available / 1e9:.0f} GB",
      "leave it out, or choose a smaller `image_size`",
    )
  return stream == "never" or needed < available / 2


def _hold_out(
  listing: Listing, readable: np.ndarray, fraction: float, seed: int
) -> np.ndarray:
  """Chooses test images by a hash of their names, at least one per class.

  Unlike a shuffle, a hash keeps the choice when other files come or go.
  """

  def rank(index: int) -> bytes:
    name = listing.files[index].relative_to(listing.root).as_posix()
    return hashlib.sha256(f"{seed}/".encode() + os.fsencode(name)).digest()

  is_test = np.zeros(len(listing.files), bool)
  for label, name in enumerate(listing.classes):
    members = np.flatnonzero(readable & (listing.labels == label)).tolist()
    if len(members) == 1:
      raise DataError(
        "data_dir",
        f"`data_dir={listing.root}`: class {printable(name)} has one readable"
        " image, but one is needed for training and one for `val_fraction`",
        "add images or a val/ directory",
      )
    count = min(max(round(fraction * len(members)), 1), len(members) - 1)
    is_test[sorted(members, key=rank)[:count]] = True
  return is_test


# Characters with a meaning in some file system, shell or URL.
_ODD = frozenset('/\\:*?"<>|%~')
# Windows has devices of these names, whatever the suffix.
_PORTS = [f"{port}{n}" for port in ("com", "lpt") for n in range(10)]
_DEVICES = frozenset(("con", "prn", "aux", "nul", *_PORTS))
_LONGEST = 100  # Bytes; file systems allow 255, some of them after encoding.


def folder_names(names: Iterable[Any]) -> list[str]:
  """Names a folder for each class: by its name where that is safe, else escaped.

  Folders differ even where case does not count.

  >>> folder_names(["cat", "Cat", "../dog", 3, "", ".git", "a/b"])
  ['cat', 'Cat~2', '%2E.%2Fdog', '3', '_', '%2Egit', 'a%2Fb']

  Args:
    names: of all classes; other values are written as text.
  """
  folders, taken = [], set()
  for name in names:
    safe, number = _safe(str(name)), 1
    folder = safe
    while folder.casefold() in taken:
      number += 1
      folder = f"{safe}~{number}"
    taken.add(folder.casefold())
    folders.append(folder)
  return folders


def _safe(name):
  """Makes one path component that cannot lead elsewhere."""
  last = len(name) - 1
  safe = "".join(
    _escaped(char)
    if char in _ODD
    or not char.isprintable()
    or (char == "." and i in (0, last))  # Hidden; or dropped by Windows.
    or (char == " " and i in (0, last))
    else char
    for i, char in enumerate(name)
  )
  if safe.partition(".")[0].lower() in _DEVICES:
    safe = _escaped(safe[0]) + safe[1:]
  if len(safe.encode()) > _LONGEST:
    digest = hashlib.sha256(safe.encode()).hexdigest()[:12]
    start = safe.encode()[: _LONGEST - 13].decode(errors="ignore")
    safe = f"{start}~{digest}"
  return safe or "_"


def _escaped(char):
  encoded = char.encode("utf-8", "surrogatepass")
  return "".join(f"%{byte:02X}" for byte in encoded)
