"""ImageNet as its owner has it becomes shards that can be read at random.

Image files are copied byte by byte. Whatever interrupts this, the same command
goes on where it was; on a complete directory it checks everything, and makes
again what is damaged.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
import contextlib
import hashlib
import os
from pathlib import Path
import shutil
from typing import NamedTuple
import zlib

from mnemonics_jax.data import imagenet_files as files
from mnemonics_jax.data import imagenet_sources as sources
from mnemonics_jax.data.dataset import DataError
from mnemonics_jax.data.imagenet_classes import SPLITS, World, all_wnids
from mnemonics_jax.data.listing import printable
from mnemonics_jax.progress import DataReport, Report, ignore

_SHARD_BYTES = 2**30  # About: few enough files to keep all of them open.
_MAGIC = (b"\xff\xd8\xff", b"\x89PNG\r\n\x1a\n")  # One of the files is a PNG.
_MOST_NAMED = 5


class _Plan(NamedTuple):
  """A shard to be.

  Attributes:
    file: its name.
    split: of its images.
    parts: of the source, whose images it gets.
    origin: changes with them.
  """

  file: str
  split: str
  parts: Sequence[sources.Part]
  origin: str

  @property
  def size(self) -> int:
    return sum(part.size for part in self.parts)


def prepare(
  world: World,
  source: str | os.PathLike,
  data_dir: str | os.PathLike,
  *,
  reduced: bool = False,
  report: Report = ignore,
  shard_bytes: int = _SHARD_BYTES,
) -> Path:
  """Writes `data_dir/<name of the world>`, or what is missing of it.

  Args:
    world: which classes, and how many images of each there must be.
    source: a directory with ImageNet in one of the forms of `imagenet_sources`.
    data_dir: where to write.
    reduced: whether to take what is there, even if classes or images are
      missing.
    report: hears how far it is, in bytes of the source.
    shard_bytes: size of a shard, about.

  Returns:
    The directory.
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
  with _writing(target), files.locked(target):
    _check_room(target, plans)
    shards, done = [], 0
    total, complete = sum(plan.size for plan in plans), files.begun(target)
    for plan in plans:
      shard = complete.get(plan.file)
      if shard is None or not _intact(target, plan, shard):
        files.remove_index(target)
        shard = _write_shard(target, plan, wanted)
        files.append(target, shard)
      shards.append(shard)
      done += plan.size
      report(DataReport(done, total))
    counts = {split: _counts(shards, split) for split in SPLITS}
    if reduced:
      world = _reduced(world, counts, source)
    _check_counts(world, counts, source)
    files.write_index(target, world, shards)
  return target


def _known_classes(parts, world) -> frozenset[str]:
  """Classes of the data set of which both splits may have images."""
  wanted = frozenset(world.wnids)
  for split in SPLITS:
    known = [part.wnids for part in parts if part.split == split]
    if None not in known:
      wanted &= frozenset().union(*known)
  return wanted


def _plan(parts, wanted, shard_bytes) -> list[_Plan]:
  """Parts in their order, gathered until they are large enough."""
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
      # The names of the parts are where the source is, which may move.
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


def _intact(target: Path, plan: _Plan, shard: files.Shard) -> bool:
  """Whether a shard is there, from this source, as it was written."""
  path = target / shard.file
  return (
    shard.origin == plan.origin
    and path.is_file()
    and path.stat().st_size == shard.size
    and files.sha256(path) == shard.sha256
  )


def _write_shard(
  target: Path, plan: _Plan, wanted: frozenset[str]
) -> files.Shard:
  from array_record.python import array_record_module  # pyright: ignore[reportAttributeAccessIssue]

  temporary = target / f"{plan.file}.incomplete"
  names, wnids, crcs = [], [], []
  labels = {wnid: label for label, wnid in enumerate(all_wnids())}
  writer = array_record_module.ArrayRecordWriter(
    str(temporary), files.WRITER_OPTIONS
  )
  try:
    try:
      for photo in _photos(plan, wanted):
        writer.write(_record(photo, labels[photo.wnid]))
        names.append(photo.name)
        wnids.append(photo.wnid)
        crcs.append(zlib.crc32(photo.encoded))
    finally:
      writer.close()
    digest = files.sha256(temporary)
    size = temporary.stat().st_size
    temporary.rename(target / plan.file)
  finally:
    temporary.unlink(missing_ok=True)
  return files.Shard(
    plan.file, plan.split, plan.origin, size, digest, names, wnids, crcs
  )


@contextlib.contextmanager
def _writing(target: Path) -> Iterator[None]:
  """Trouble with the disk that is written to, in words."""
  try:
    yield
  except (OSError, RuntimeError) as error:  # array_record raises the latter.
    raise DataError(
      "data_dir",
      f"`data_dir`: cannot write to {target} ({str(error).splitlines()[0]})",
      "free space or choose another directory; what is written is kept",
    ) from error


def _photos(plan: _Plan, wanted: frozenset[str]) -> Iterator[sources.Photo]:
  for part in plan.parts:
    try:
      for photo in part.read():
        if photo.wnid not in wanted:
          continue
        if not photo.encoded.startswith(_MAGIC):
          raise DataError(
            "source",
            f"`source`: {printable(photo.name)} of {printable(part.name)} is not"
            " an image",
            "replace it; what has been copied is kept",
          )
        yield photo
    except OSError as error:
      raise DataError(
        "source",
        f"`source`: {printable(part.name)} cannot be read"
        f" ({error.strerror or error})",
        "try again when it can; what has been copied is kept",
      ) from error


def _record(photo: sources.Photo, label: int) -> bytes:
  from tensorflow_datasets.proto import tf_example_pb2

  example = tf_example_pb2.Example()  # pyright: ignore[reportAttributeAccessIssue]
  feature = example.features.feature
  feature["image"].bytes_list.value.append(photo.encoded)
  feature["label"].int64_list.value.append(label)
  feature["file_name"].bytes_list.value.append(photo.name.encode())
  return example.SerializeToString(deterministic=True)


# What must be there.


def _counts(shards: Sequence[files.Shard], split: str) -> Counter[str]:
  found = Counter()
  for shard in shards:
    if shard.split == split:
      found.update(shard.wnids)
  return found


def _check_before(parts, world: World, source: Path) -> None:
  """What can be known to be missing before anything is copied."""
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
  """The classes that have images to train on and to validate with."""
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
