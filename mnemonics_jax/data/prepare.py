"""Converts data sets into the form that training reads, without TensorFlow.

  python -m mnemonics_jax.data.prepare --source=cifar-100-python.tar.gz \\
    --data_dir=~/tensorflow_datasets
  python -m mnemonics_jax.data.prepare --dataset=imagenet --source=DIR \\
    --data_dir=~/imagenet

CIFAR-100 takes half a minute. ImageNet is copied file by file: 145 GB in about an
hour, ImageNet-Subset a tenth of that. After an interruption, the same command
continues. On a complete directory it checks all files and repairs damaged ones.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import hashlib
import io
import itertools
import os
from pathlib import Path
import re
import shutil
import sys
import tempfile
import time
from typing import NamedTuple
import zlib

from absl import app, flags
import numpy as np
from PIL import Image

from mnemonics_jax.data import cifar100, reading, records, shards
from mnemonics_jax.data import imagenet_sources as sources
from mnemonics_jax.data.dataset import (
  DataError,
  data_directory,
  first_line,
  printable,
)
from mnemonics_jax.data.imagenet import WORLDS, World, all_wnids
from mnemonics_jax.data.shards import SPLITS, Shard
from mnemonics_jax.progress import DataReport, Event, Report, ignore

DATASETS = ("cifar100", *WORLDS)
_MISTAKE, _INTERRUPTED = 2, 130
_SECONDS_BETWEEN_LINES = 60


def run(
  source: str | None,
  data_dir: str | None,
  dataset: str = "cifar100",
  reduced: bool = False,
) -> int:
  """Prepares a data set and prints the result; returns the exit code."""
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
      f"get {cifar100.URL} and name it or its unpacked directory",
    )
  target = prepare_cifar100(source, data_dir, report=_progress())
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
  root = data_directory(data_dir)
  target = prepare_imagenet(
    WORLDS[dataset](), source, root, reduced=reduced, report=_progress()
  )
  index = shards.read_index(target)
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
  """Shows the progress: in place on a terminal, else one line a minute."""
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


# CIFAR-100.

VERSION = "3.0.2"  # Of the TFDS data set that this is a copy of.


def prepare_cifar100(
  source: str | os.PathLike,
  data_dir: str | os.PathLike | None = None,
  *,
  md5: Mapping[str, str] = cifar100.MD5,
  report: Report = ignore,
) -> Path:
  """Writes `data_dir/cifar100/3.0.2` from the official directory or archive.

  `tfds.data_source("cifar100")` can read it: array_record files of PNG images with
  the ids that TensorFlow Datasets gives them. Everything is read back and compared
  with the source before the directory gets its name.

  Args:
    source: `cifar-100-python`, its `.tar.gz`, or a directory that has one.
    data_dir: where to write; the default of `data_directory`.
    md5: sums that the files in `source` must have.
    report: is called with the number of images written and read back.
  """
  origin = cifar100.find_official(Path(os.path.expanduser(source)))
  if origin is None:
    raise DataError(
      "source",
      f"`source={source}` is neither {cifar100.FOLDER}/ nor"
      f" {cifar100.FOLDER}.tar.gz",
      f"get {cifar100.URL} and name it",
    )
  root = data_directory(data_dir)
  target = root / "cifar100" / VERSION
  if target.exists():
    raise DataError(
      "data_dir",
      f"`data_dir={root}`: {target} exists and is left as it is",
      "remove it or choose another directory",
    )
  data = cifar100.read_official(origin, md5=md5, field="source")
  temporary = None
  try:
    root.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(".incomplete", "cifar100.", root))
    # mkdtemp keeps others out; data directories are often shared.
    temporary.chmod(0o755)
    _write_cifar100(data, temporary, report)
    _compare(data, temporary, report)
    target.parent.mkdir(exist_ok=True)
    temporary.rename(target)
  except (OSError, RuntimeError) as error:  # array_record raises the latter.
    raise DataError(
      "data_dir",
      f"`data_dir={root}`: cannot write there ({first_line(error)})",
      "free space or choose another directory",
    ) from error
  finally:
    if temporary:
      shutil.rmtree(temporary, ignore_errors=True)
  return target


def _write_cifar100(
  data: cifar100.Cifar100, target: Path, report: Report
) -> None:
  import tensorflow_datasets as tfds

  total, done, infos = 2 * sum(len(split.labels) for split in data[:2]), 0, []
  for name, split in zip(("train", "test"), data[:2], strict=True):
    size, count = 0, len(split.labels)
    path = target / f"cifar100-{name}.array_record-00000-of-00001"
    with contextlib.closing(records.writer(path)) as writer:
      for i, image in enumerate(split.images):
        png = io.BytesIO()
        Image.fromarray(image).save(png, "PNG")
        record = records.encode(
          id=f"{name}_{i:05d}".encode(),
          image=png.getvalue(),
          label=int(split.labels[i]),
          coarse_label=int(split.coarse_labels[i]),
        )
        writer.write(record)
        size += len(record)
        done += 1
        report(DataReport(done, total))
    infos.append(
      tfds.core.SplitInfo(name=name, shard_lengths=[count], num_bytes=size)
    )
  tfds.folder_dataset.write_metadata(
    data_dir=target,
    features=tfds.features.FeaturesDict(
      {
        "id": tfds.features.Text(),
        "image": tfds.features.Image(shape=(32, 32, 3)),
        "label": tfds.features.ClassLabel(names=data.class_names),
        "coarse_label": tfds.features.ClassLabel(names=data.coarse_names),
      }
    ),
    split_infos=infos,
    version=VERSION,
    check_data=False,  # That would need TensorFlow.
    description="CIFAR-100: 32×32 images of 100 classes, 600 of each.",
    homepage="https://www.cs.toronto.edu/~kriz/cifar.html",
    supervised_keys=("image", "label"),
  )


def _compare(data: cifar100.Cifar100, target: Path, report: Report) -> None:
  """Reads the new files back: the second half of the progress."""

  def hear(event: Event) -> None:
    if isinstance(event, DataReport):
      report(DataReport(event.total + event.done, 2 * event.total))

  found = cifar100.read_tfds(target, hear)
  for written, expected in zip(found[:2], data[:2], strict=True):
    if not (
      np.array_equal(written.images, expected.images)
      and np.array_equal(written.labels, expected.labels)
      and found.class_names == data.class_names
    ):
      raise DataError(
        "data_dir",
        "What was written differs from what was read, and nothing was kept",
        "check the disk behind `data_dir`",
      )


# ImageNet. Image files are copied byte by byte into shards. A shard that is complete
# is written to the journal, so that the same command continues there.

_SHARD_BYTES = 2**30  # About: few enough files to keep all of them open.
_CHECKED_AT_A_TIME = 64  # Images.
_MOST_NAMED = 5


class _Plan(NamedTuple):
  """A shard to write.

  Attributes:
    file: its name.
    split: the split of its images.
    parts: the parts of the source that it gets.
    origin: a hash that changes with them.
  """

  file: str
  split: str
  parts: Sequence[sources.Part]
  origin: str

  @property
  def size(self) -> int:
    return sum(part.size for part in self.parts)


def prepare_imagenet(
  world: World,
  source: str | os.PathLike,
  data_dir: str | os.PathLike,
  *,
  reduced: bool = False,
  report: Report = ignore,
  shard_bytes: int = _SHARD_BYTES,
) -> Path:
  """Writes the shards that `data_dir/<name of the world>` lacks; returns that.

  Args:
    world: the classes, and how many images each must have.
    source: a directory with ImageNet in one of the forms of `imagenet_sources`.
    data_dir: where to write.
    reduced: whether to accept that classes or images are missing.
    report: is called with the bytes of the source that are done.
    shard_bytes: size of a shard, about.
  """
  source = Path(os.path.expanduser(source))
  target = Path(os.path.expanduser(data_dir)) / world.name
  parts = sources.parts(source)
  wanted = _known_classes(parts, world)
  if reduced:
    _check_several(world, wanted, source)
  else:
    _check_before(parts, world, source)
  plans = _plan(parts, wanted, shard_bytes)
  with _writing(target), shards.locked(target):
    _check_room(target, plans)
    written, done = [], 0
    total, complete = sum(plan.size for plan in plans), shards.begun(target)
    for plan in plans:
      shard = complete.get(plan.file)
      if shard is None or not _intact(target, plan, shard):
        shards.remove_index(target)
        shard = _write_shard(target, plan, wanted)
        shards.append(target, shard)
      written.append(shard)
      done += plan.size
      report(DataReport(done, total))
    counts = {split: _counts(written, split) for split in SPLITS}
    if reduced:
      world = _reduced(world, counts, source)
    _check_counts(world, counts, source)
    shards.write_index(
      target, world.name, world.wnids, written, reduced=world.reduced
    )
  return target


def _known_classes(parts, world) -> frozenset[str]:
  """The classes that may have images in both splits."""
  wanted = frozenset(world.wnids)
  for split in SPLITS:
    known = [part.wnids for part in parts if part.split == split]
    if None not in known:
      wanted &= frozenset().union(*known)
  return wanted


def _plan(parts, wanted, shard_bytes) -> list[_Plan]:
  """Groups parts into shards, in their order."""
  parts = [p for p in parts if p.wnids is None or p.wnids & wanted]
  plans = []
  for split in SPLITS:
    groups, size = [[]], 0
    for part in parts:
      if part.split != split:
        continue
      if size >= shard_bytes:
        groups.append([])
        size = 0
      groups[-1].append(part)
      size += part.size
    for number, group in enumerate(groups):
      file = f"{split}-{number:05d}-of-{len(groups):05d}.array_record"
      # Without the names of parts: they are paths, and the source may move.
      said = "\n".join([*sorted(wanted), *(part.state for part in group)])
      origin = hashlib.sha256(said.encode(errors="surrogateescape"))
      plans.append(_Plan(file, split, group, origin.hexdigest()))
  return plans


def _check_room(target: Path, plans: Sequence[_Plan]) -> None:
  needed = sum(plan.size for plan in plans if not (target / plan.file).exists())
  free = shutil.disk_usage(target).free
  if needed > free:
    raise DataError(
      "data_dir",
      f"`data_dir={target.parent}` has {free / 1e9:,.1f} GB of free space, but"
      f" {needed / 1e9:,.1f} GB are needed",
      "free space or choose another directory",
    )


def _intact(target: Path, plan: _Plan, shard: Shard) -> bool:
  """Whether a shard of this source is as it was written."""
  path = target / shard.file
  return (
    shard.origin == plan.origin
    and path.is_file()
    and path.stat().st_size == shard.size
    and shards.sha256(path) == shard.sha256
  )


def _write_shard(target: Path, plan: _Plan, wanted: frozenset[str]) -> Shard:
  temporary = target / f"{plan.file}.incomplete"
  names, wnids, crcs = [], [], []
  labels = {wnid: label for label, wnid in enumerate(all_wnids())}
  try:
    writer = records.writer(temporary, shards.WRITER_OPTIONS)
    with contextlib.closing(writer):
      for photo in _photos(plan, wanted):
        record = records.encode(
          image=photo.encoded,
          label=labels[photo.wnid],
          file_name=photo.name.encode(),
        )
        writer.write(record)
        names.append(photo.name)
        wnids.append(photo.wnid)
        crcs.append(zlib.crc32(photo.encoded))
    digest = shards.sha256(temporary)
    size = temporary.stat().st_size
    temporary.rename(target / plan.file)
  finally:
    temporary.unlink(missing_ok=True)
  return Shard(
    plan.file, plan.split, plan.origin, size, digest, names, wnids, crcs
  )


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
  """Turns errors of the target's disk into a sentence with a fix."""
  try:
    yield
  except (OSError, RuntimeError) as error:  # array_record raises the latter.
    raise DataError(
      "data_dir",
      f"`data_dir`: cannot write to {target} ({first_line(error)})",
      "free space or choose another directory; what is written is kept",
    ) from error


def _photos(plan: _Plan, wanted: frozenset[str]) -> Iterator[sources.Photo]:
  """Reads the images of the source, and decodes each once to check it."""
  with reading.threads() as pool:
    for part in plan.parts:
      photos = (photo for photo in part.read() if photo.wnid in wanted)
      try:
        while some := list(itertools.islice(photos, _CHECKED_AT_A_TIME)):
          for photo, problem in zip(
            some, pool.map(_problem, some), strict=True
          ):
            if problem:
              raise DataError(
                "source",
                f"`source`: {printable(photo.name)} of {printable(part.name)} is"
                f" not an image that can be read ({problem})",
                "replace it and repeat the command; what has been copied is kept",
              )
            yield photo
      except OSError as error:
        raise DataError(
          "source",
          f"`source`: {printable(part.name)} cannot be read"
          f" ({error.strerror or error})",
          "try again when it can; what has been copied is kept",
        ) from error


def _problem(photo: sources.Photo) -> str:
  try:
    reading.check(photo.encoded)
  except Exception as error:  # Damaged files raise exceptions of any kind.
    return reading.reason(error)
  return ""


# What must be there.


def _counts(written: Sequence[Shard], split: str) -> Counter[str]:
  found = Counter()
  for shard in written:
    if shard.split == split:
      found.update(shard.wnids)
  return found


def _check_before(parts, world: World, source: Path) -> None:
  """Looks for missing classes and images before copying."""
  for split in SPLITS:
    ours = [part for part in parts if part.split == split]
    if all(part.wnids is not None for part in ours):
      present = frozenset().union(*(part.wnids for part in ours))
      _check_classes(world, split, present, source)
    known = [part.counts for part in ours if part.counts is not None]
    if len(known) == len(ours):
      _check_counts(world, {split: sum(known, Counter())}, source)


def _check_classes(world: World, split: str, present, source: Path) -> None:
  missing = [wnid for wnid in world.wnids if wnid not in present]
  if missing:
    more = len(missing) - _MOST_NAMED
    raise DataError(
      "source",
      f"`source={source}` has no {split} images of {len(missing)} of the"
      f" {len(world.wnids)} classes of {world.name}:"
      f" {', '.join(missing[:_MOST_NAMED])}"
      + (f" and {more} more" if more > 0 else ""),
      "add them, or add `reduced` to take the classes that are there",
    )


def _check_counts(
  world: World, counts: Mapping[str, Mapping[str, int]], source: Path
) -> None:
  for split, found in counts.items():
    _check_classes(world, split, found, source)
    low, high = world.least[split], world.most[split]
    for wnid in world.wnids:
      if found[wnid] < low or (high is not None and found[wnid] > high):
        expected = str(low) if low == high else f"{low} to {high}"
        raise _wrong_count(source, found[wnid], split, f" of {wnid}", expected)
    total = sum(found[wnid] for wnid in world.wnids)
    if total != world.total.get(split, total):
      raise _wrong_count(source, total, split, "", f"{world.total[split]:,}")


def _wrong_count(source, found, split, of, expected):
  return DataError(
    "source",
    f"`source={source}` has {found:,} {split} images{of}, expected {expected}",
    "complete it and repeat the command, or add `reduced` to take what is there",
  )


def _reduced(world: World, counts, source: Path) -> World:
  """Reduces the world to the classes that have images in both splits."""
  present = set(counts["train"]) & set(counts["validation"])
  _check_several(world, present, source)
  try:
    _check_counts(world, counts, source)
  except DataError:
    return world.only(present)
  return world  # Nothing is missing after all.


def _check_several(world: World, present, source: Path) -> None:
  if len(present) < 2:
    raise DataError(
      "source",
      f"`source={source}` has {len(present)} classes of {world.name}, at least 2"
      " are needed",
      "name a directory with more of them",
    )


if __name__ == "__main__":
  # Only here: the experiments define flags of the same names.
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
