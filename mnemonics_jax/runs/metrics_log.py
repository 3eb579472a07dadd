"""metrics.jsonl: one JSON object per line, whatever kills the run.

The fields of a line are listed in `layout.METRICS`.
"""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
import errno
import json
import math
import os
from pathlib import Path
import platform
import time
from typing import Any

from mnemonics_jax import files
from mnemonics_jax.runs import layout
from mnemonics_jax.runs.layout import mismatch


class MetricsLog:
  """Appends records to metrics.jsonl and mirrors their numbers to TensorBoard.

  A record is on disk, as a whole line, when `write` returns. A line that a
  kill cut in half is dropped when the log is opened again.
  """

  def __init__(self, workdir: str | os.PathLike[str], tensorboard: bool = True):
    self._workdir = Path(workdir)
    self._file = None
    self._events = (
      Events(layout.tensorboard_dir(self._workdir)) if tensorboard else None
    )

  def __enter__(self) -> "MetricsLog":
    self._workdir.mkdir(parents=True, exist_ok=True)
    self._file = self._open()
    self._file.seek(0)
    self._file.truncate(self._file.read().rfind(b"\n") + 1)
    files.sync(self._workdir)
    self._copy()
    return self

  def _open(self):
    return open(layout.metrics_path(self._workdir), "a+b", buffering=0)

  def __exit__(self, *_: object) -> None:
    if self._file:
      self._file.close()
    if self._events:
      self._events.close()
    self._file = None

  def sync(self) -> int:
    """Asks the disk to hold all records; returns the length of the file."""
    os.fsync(self._opened.fileno())
    return self._size

  @property
  def _size(self):
    return self._opened.seek(0, os.SEEK_END)

  def truncate(self, size: int, seed: int) -> int:
    """Forgets what a seed wrote after the file had this size.

    Returns:
      How many bytes are missing from the file.
    """
    self._opened.seek(0)
    there, kept, end = 0, b"", 0
    for line in self._opened.read().splitlines(keepends=True):
      if there < size or _seed_of(line) not in (seed, None):
        kept, end = kept + line, there + len(line)
      there += len(line)
    if len(kept) < end:  # Something between what is kept.
      with files.replacing(layout.metrics_path(self._workdir)) as file:
        file.write(kept)
      self._opened.close()
      self._file = self._open()
    elif end < there:
      self._opened.truncate(end)
    if len(kept) < there:
      self._copy()
    return max(size - there, 0)

  def _copy(self):
    """Shows TensorBoard what is in the file, and nothing else."""
    if self._events:
      self._events.restart(read_metrics(self._workdir))

  def start_of(self, seed: int, phase: int = 0) -> int:
    """The size before the first record of a seed in this phase or a later one."""
    self._opened.seek(0)
    size = 0
    for line in self._opened.read().splitlines(keepends=True):
      record = _record(line)
      if record.get("seed") == seed and record.get("phase", 0) >= phase:
        break
      size += len(line)
    return size

  @property
  def _opened(self):
    if self._file is None:
      raise ValueError("MetricsLog is closed: write inside its with block")
    return self._file

  def write(self, record: Mapping[str, Any]) -> None:
    """Appends one record; numbers that are not finite become null."""
    file = self._opened
    line = json.dumps(_plain(record), ensure_ascii=False, allow_nan=False)
    line = line.encode("utf-8", "backslashreplace") + b"\n"
    end = self._size
    if file.write(line) != len(line):
      file.truncate(end)
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
    if self._events:
      self._events.add(record)


def _record(line):
  """The object in a line, empty if there is none."""
  with contextlib.suppress(ValueError, RecursionError):
    record = json.loads(line)
    if isinstance(record, dict):
      return record
  return {}


def _seed_of(line):
  return _record(line).get("seed")


def read_metrics(
  workdir: str | os.PathLike[str], problems: list[str] | None = None
) -> list[dict[str, Any]]:
  """All complete records of a work directory, oldest first.

  Args:
    workdir: where they are.
    problems: gets a sentence for every line that is left out, for it is not what
      it should be.

  Raises:
    WorkdirError: the file may not be read.
  """
  path = layout.metrics_path(workdir)
  if not path.exists():
    return []
  try:
    *lines, _ = path.read_bytes().split(b"\n")  # The last is empty or half.
  except OSError as error:
    raise layout.unreadable(path, error) from error
  records = []
  for number, line in enumerate(lines, 1):
    try:
      record = json.loads(line)
    except (ValueError, RecursionError):
      record = None
    if isinstance(record, dict):
      fields = layout.METRICS.get(str(record.get("kind")), {})
      problem = mismatch(record, fields, f"line {number}")
    else:
      problem = f"line {number} is not a JSON object"
    if not problem:
      records.append(record)
    elif problems is not None:
      problems.append(f"{path} is damaged: {problem}, and is left out.")
  return records


def _plain(value: Any) -> Any:
  """The value in JSON's own types; array scalars and arrays included."""
  if isinstance(value, Mapping):
    return {str(key): _plain(item) for key, item in value.items()}
  if hasattr(value, "tolist"):
    return _plain(value.tolist())
  if isinstance(value, (list, tuple)):
    return [_plain(item) for item in value]
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


# A copy for TensorBoard.


_FLUSH_SECONDS = 10.0


class Events:
  """Writes the numbers of records as scalars, while the disk has room.

  Args:
    directory: where TensorBoard looks for them.
  """

  def __init__(self, directory: Path):
    self._directory = directory
    self._writer: Any = None
    self._flushed = time.monotonic()

  def restart(self, records: Iterable[Mapping[str, Any]]) -> None:
    """Events of these records and no others: events cannot be taken back."""
    # Not SummaryWriter: a full disk would end its thread, and everybody else
    # would wait for it.
    from tensorboardX.record_writer import RecordWriter

    self.close()
    with contextlib.suppress(OSError):
      self._directory.mkdir(exist_ok=True)
      for events in self._directory.glob("*tfevents*"):
        events.unlink()
      name = f"events.out.tfevents.{time.time():.0f}.{platform.node()}"
      self._writer = RecordWriter(str(self._directory / name))
    self._write(file_version="brain.Event:2")
    for record in records:
      self.add(record)

  def add(self, record: Mapping[str, Any]) -> None:
    from tensorboardX.summary import scalar

    step = record.get("epoch", record.get("phase", 0))
    for tag, value in _scalars(record):
      self._write(step=step, summary=scalar(tag, value))
    if time.monotonic() - self._flushed > _FLUSH_SECONDS:
      self._flushed = time.monotonic()
      with contextlib.suppress(OSError):
        if self._writer is not None:
          self._writer.flush()

  def _write(self, **event):
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore

    if self._writer is not None:
      event = Event(wall_time=time.time(), **event)
      try:
        self._writer.write(event.SerializeToString())
      except OSError:
        self.close()

  def close(self) -> None:
    if self._writer is not None:
      with contextlib.suppress(OSError):
        self._writer.close()
    self._writer = None


def _scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
  """TensorBoard tags and values, e.g. `seed_0/phase_1/train/loss`."""
  where = [f"seed_{record['seed']}"] if "seed" in record else []
  if "epoch" in record:  # Phase records are points of one curve instead.
    where += [f"phase_{record['phase']}"] if "phase" in record else []
    where += [str(record["stage"])] if "stage" in record else []
  place = {"kind", "seed", "phase", "stage", "epoch"}

  def walk(prefix: list[str], item: Any) -> Iterator[tuple[str, float]]:
    if isinstance(item, Mapping):
      for key, inner in item.items():
        yield from walk([*prefix, str(key)], inner)
    elif isinstance(item, (bool, str)) or item is None:
      return
    elif isinstance(item, (int, float)) or getattr(item, "shape", None) == ():
      yield "/".join(prefix), float(item)

  yield from walk(where, {k: v for k, v in record.items() if k not in place})
