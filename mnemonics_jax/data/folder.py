"""A directory of images: `train/<class>/*.jpg`, with `val/` or without."""

from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import os
from pathlib import Path
from typing import Any

import numpy as np

from mnemonics_jax.data.cache import cached
from mnemonics_jax.data.dataset import DataError, Dataset, verify
from mnemonics_jax.data.images import Images, Stored
from mnemonics_jax.data.listing import LAYOUT, Listing, odd, printable, scan
from mnemonics_jax.data.reading import ImageFiles, examine, read_images
from mnemonics_jax.data.share import Share
from mnemonics_jax.progress import Report, ignore

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's.
_MIN_SIZE, _MAX_SIZE = 8, 1024


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
    least_classes: how many there must be; one is enough to go on with.
    stream: `never` decodes all images now, `always` each whenever it is needed,
      `auto` now if memory has room for them.
    cache_dir: where decoded arrays are kept.
    report: hears how far decoding has come.
    share: which images this process decodes.
  """
  _check_options(data_dir, image_size, val_fraction)
  root = Path(os.path.expanduser(data_dir or ""))
  listing = scan(root, least_classes)
  if not share.all_equal(
    os.fsencode(f.relative_to(root)) for f in listing.files
  ):
    raise DataError(
      "data_dir",
      f"`data_dir={root}` has other files on another machine",
      "all must see the same",
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
  # Not of what is kept: it is of files that were not read.
  notes = (*listing.notes, *dataset.notes)
  return dataclasses.replace(dataset, notes=notes)


@dataclasses.dataclass(frozen=True)
class _Looked:
  """What is known of images that were decoded once, and not kept.

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
  if not _MIN_SIZE <= image_size <= _MAX_SIZE:
    raise DataError(
      "image_size",
      f"`image_size={image_size}` cannot be used",
      f"choose {_MIN_SIZE} to {_MAX_SIZE} pixels",
    )
  if not 0 < val_fraction < 1:
    raise DataError(
      "val_fraction",
      f"`val_fraction={val_fraction}` cannot be used",
      "choose a part between 0 and 1, such as 0.2",
    )


def _build(root, listing, images, problems, val_fraction, seed, strict):
  """The data set of the images that could be read."""
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
    mean=_MEAN,
    std=_STD,
    notes=(*odd(listing.classes), *notes),
    departures=(
      "images cut to squares beforehand (paper: random parts of whole ones)",
    ),
  )


def _fits(root: Path, count: int, size: int, stream: str) -> bool:
  """Whether all images are to be in memory."""
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
