"""TensorBoard events: a copy of metrics.jsonl for those who like to watch."""

from collections.abc import Iterable, Iterator, Mapping
import contextlib
from pathlib import Path
import platform
import time
from typing import Any

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
