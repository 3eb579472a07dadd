"""metrics.jsonl: one JSON object per line, whatever kills the run."""

from collections.abc import Iterator, Mapping
import contextlib
import errno
import json
import math
import os
from pathlib import Path
from typing import Any

FILE_NAME = "metrics.jsonl"


class MetricsLog:
  """Appends records to metrics.jsonl and mirrors their numbers to TensorBoard.

  A record is on disk, as a whole line, when `write` returns. A line that a
  kill cut in half is dropped when the log is opened again.
  """

  def __init__(self, workdir: str | os.PathLike[str], tensorboard: bool = True):
    self._workdir = Path(workdir)
    self._tensorboard = tensorboard
    self._file = None
    self._writer = None

  def __enter__(self) -> "MetricsLog":
    self._workdir.mkdir(parents=True, exist_ok=True)
    self._file = open(self._workdir / FILE_NAME, "a+b", buffering=0)
    self._file.seek(0)
    self._file.truncate(self._file.read().rfind(b"\n") + 1)
    self._begin_mirror()
    return self

  def __exit__(self, *_: object) -> None:
    if self._file:
      self._file.close()
    self._end_mirror()
    self._file = None

  def sync(self) -> int:
    """Asks the disk to hold all records; returns the length of the file."""
    os.fsync(self._open.fileno())
    return self._size

  @property
  def _size(self):
    return self._open.seek(0, os.SEEK_END)

  def truncate(self, size: int) -> None:
    """Forgets what was written after the file had this size."""
    if size < self._size:
      self._open.truncate(size)
      self._begin_mirror()

  def start_of(self, seed: int) -> int:
    """The size before the first record of a seed."""
    self._open.seek(0)
    size = 0
    for line in self._open.read().splitlines(keepends=True):
      with contextlib.suppress(ValueError):
        if json.loads(line).get("seed") == seed:
          break
      size += len(line)
    return size

  @property
  def _open(self):
    if self._file is None:
      raise ValueError("MetricsLog is closed: write inside its with block")
    return self._file

  def _begin_mirror(self):
    """Events of all records. They are only a copy, and cannot be shortened."""
    if not self._tensorboard:
      return
    from tensorboardX import SummaryWriter

    self._end_mirror()
    directory = self._workdir / "tensorboard"
    for events in directory.glob("*tfevents*"):
      events.unlink()
    self._writer = SummaryWriter(str(directory), flush_secs=10)
    with contextlib.suppress(ValueError):  # Not for us to say.
      for record in read_metrics(self._workdir):
        self._reflect(record)

  def _end_mirror(self):
    if mirror := self._mirror:
      with contextlib.suppress(OSError):
        mirror.close()
    self._writer = None

  def _reflect(self, record):
    if mirror := self._mirror:
      step = record.get("epoch", record.get("phase", 0))
      for tag, value in _scalars(record):
        mirror.add_scalar(tag, value, step)

  @property
  def _mirror(self) -> Any:
    """TensorBoard's writer while its thread lives.

    A full disk ends the thread; what it is sent would wait for ever.
    """
    writer: Any = self._writer
    if writer and writer.file_writer.event_writer._worker.is_alive():
      return writer
    return None

  def write(self, record: Mapping[str, Any]) -> None:
    """Appends one record; numbers that are not finite become null."""
    file = self._open
    line = json.dumps(_plain(record), ensure_ascii=False, allow_nan=False)
    line = line.encode("utf-8", "backslashreplace") + b"\n"
    end = self._size
    if file.write(line) != len(line):
      file.truncate(end)
      raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file.name)
    self._reflect(record)


def read_metrics(workdir: str | os.PathLike[str]) -> list[dict[str, Any]]:
  """All complete records of a work directory, oldest first.

  Raises:
    ValueError: when a line is not a JSON object; the message names it.
  """
  path = Path(workdir) / FILE_NAME
  if not path.exists():
    return []
  records = []
  *lines, _ = path.read_bytes().split(b"\n")  # The last one is empty or half.
  for number, line in enumerate(lines, 1):
    try:
      record = json.loads(line)
    except ValueError:
      record = None
    if not isinstance(record, dict):
      raise ValueError(f"{path}, line {number} is not a JSON object")
    records.append(record)
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
