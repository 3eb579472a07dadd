"""A directory of images: `train/<class>/*.jpg`, with `val/` or without."""

from concurrent.futures import ThreadPoolExecutor
import errno
import hashlib
import os
from pathlib import Path
import warnings

import numpy as np

from mnemonics_jax.data.cache import cached
from mnemonics_jax.data.dataset import DataError, Dataset, Progress, verify
from mnemonics_jax.data.listing import LAYOUT, Listing, odd, printable, scan
from mnemonics_jax.data.share import Share

_MEAN, _STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's.
_MIN_SIZE, _MAX_SIZE = 8, 1024


def load(
  data_dir: str | os.PathLike | None,
  *,
  image_size: int = 64,
  val_fraction: float = 0.2,
  strict: bool = False,
  seed: int = 0,
  cache_dir: str | os.PathLike | None = None,
  progress: Progress | None = None,
  share: Share = Share(),
) -> Dataset:
  """Reads a directory of images.

  Args:
    data_dir: the directory.
    image_size: side of the square that images are resized and cropped to.
    val_fraction: part of each class that is held out if there is no `val/`.
    strict: whether an unreadable image is an error, or skipped with a note.
    seed: decides which images are held out.
    cache_dir: where decoded arrays are kept.
    progress: called while images are decoded.
    share: which images this process decodes.
  """
  _check_options(data_dir, image_size, val_fraction)
  root = Path(os.path.expanduser(data_dir or ""))
  listing = scan(root)
  _check_memory(root, len(listing.files), image_size)
  if not share.all_equal(
    *(os.fsencode(f.relative_to(root)) for f in listing.files)
  ):
    raise DataError(
      "data_dir",
      f"`data_dir={root}` has other files on another machine",
      "all must see the same",
    )

  def build() -> Dataset:
    decoded = _decode_all(listing.files, image_size, progress, share)
    return _build(root, listing, *decoded, val_fraction, seed, strict)

  options = (image_size, val_fraction, seed, strict)
  return cached(
    build,
    identity=("folder", str(root.resolve()), *options),
    files=listing.files,
    cache_dir=cache_dir,
    share=share,
  )


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
  return verify(
    Dataset(
      name="folder",
      train_images=images[train],
      train_labels=listing.labels[train],
      test_images=images[test],
      test_labels=listing.labels[test],
      class_names=tuple(map(printable, listing.classes)),
      mean=_MEAN,
      std=_STD,
      notes=(*odd(listing.classes), *notes),
    ),
    f"`data_dir={root}`",
  )


def _check_memory(root: Path, count: int, size: int) -> None:
  if not hasattr(os, "sysconf"):  # Windows.
    return
  available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
  needed = 2 * count * size * size * 3  # Once whole, once as train and test.
  if needed > available:
    raise DataError(
      "image_size",
      f"`image_size={size}`: the {count:,} images of {root} need"
      f" {needed / 1e9:.0f} GB of memory, this machine has"
      f" {available / 1e9:.0f} GB",
      "choose smaller images or fewer classes",
    )


# Trouble of disks and networks. A data set without the images that it hit would
# be another one.
_TRANSIENT = (
  errno.EIO,
  errno.ESTALE,
  errno.ETIMEDOUT,
  errno.EMFILE,
  errno.ENFILE,
)


_REASON = "S200"  # Bytes, because processes exchange them.


def _decode_all(
  files: list[Path], size: int, progress: Progress | None, share: Share
) -> tuple[np.ndarray, list[str]]:
  """All images, and for each file what is wrong with it ('' if nothing)."""
  from mnemonics_jax.data.decode import decode

  images = np.zeros((len(files), size, size, 3), np.uint8)
  problems = np.zeros(len(files), _REASON)
  assigned = share.rows(len(files))

  def decode_into(index: int) -> None:
    try:
      images[index] = decode(files[index], size)
    except Exception as error:  # Damaged files raise exceptions of any kind.
      if getattr(error, "errno", None) in _TRANSIENT:
        raise DataError(
          "data_dir",
          f"`data_dir`: {printable(str(files[index]))} cannot be read now"
          f" ({_reason(error)})",
          "try again when the disk answers",
        ) from error
      problems[index] = _reason(error).encode()

  # Threads pay: PIL decodes and resizes outside the interpreter lock.
  pool = ThreadPoolExecutor(os.cpu_count())
  with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PIL's remarks on odd but readable files.
    try:
      for done, _ in enumerate(pool.map(decode_into, assigned), start=1):
        if progress:
          progress(done, len(assigned))
    finally:
      pool.shutdown(cancel_futures=True)
  share.all_gather_rows(images)
  share.all_gather_rows(problems.view(np.uint8).reshape(len(files), -1))
  return images, [problem.decode(errors="ignore") for problem in problems]


def _reason(error: Exception) -> str:
  if type(error).__name__ == "UnidentifiedImageError":
    return "not a PNG, JPEG, BMP or WebP image"
  if isinstance(error, OSError) and error.strerror:
    return error.strerror
  return printable(str(error)) or type(error).__name__


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
