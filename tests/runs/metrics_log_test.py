"""metrics.jsonl: whole lines only, whatever happened before."""

import json

import numpy as np
import pytest

from mnemonics_jax.runs.metrics_log import MetricsLog, read_metrics


def test_records_come_back_in_order(tmp_path):
  records = [
    {"kind": "epoch", "seed": 0, "phase": 1, "stage": "train", "epoch": 0,
     "loss": 0.5, "seconds": 2.5},
    {"kind": "phase", "seed": 0, "phase": 1, "accuracy": {"head": 0.75},
     "seconds": {"train": 4}},
  ]  # fmt: skip
  with MetricsLog(tmp_path, tensorboard=False) as log:
    log.write(records[0])
    # On disk before the log is closed.
    assert read_metrics(tmp_path) == records[:1]
    log.write(records[1])
  with MetricsLog(tmp_path, tensorboard=False) as log:
    log.write(records[0])
  assert read_metrics(tmp_path) == [*records, records[0]]


@pytest.mark.parametrize("cut", [1, 5, 18])
def test_half_line_is_dropped(tmp_path, cut):
  path = tmp_path / "metrics.jsonl"
  whole, half = b'{"a": 1, "b": "x"}\n', b'{"a": 2, "b": "y"}\n'
  path.write_bytes(whole + half[:cut])
  assert read_metrics(tmp_path) == [{"a": 1, "b": "x"}]
  with MetricsLog(tmp_path, tensorboard=False) as log:
    log.write({"a": 3})
  assert path.read_bytes() == whole + b'{"a": 3}\n'


def test_only_half_a_line(tmp_path):
  (tmp_path / "metrics.jsonl").write_bytes(b'{"a"')
  with MetricsLog(tmp_path, tensorboard=False):
    pass
  assert (tmp_path / "metrics.jsonl").read_bytes() == b""


def test_numbers_of_arrays_and_numbers_that_json_lacks(tmp_path):
  with MetricsLog(tmp_path, tensorboard=False) as log:
    log.write(
      {
        "loss": np.float32(0.25),
        "count": np.int64(3),
        "list": np.arange(2),
        "bad": float("nan"),
        "worse": [np.float64("inf")],
        "name": "ü\n<b>",
      }
    )
  text = (tmp_path / "metrics.jsonl").read_text(encoding="utf-8")
  assert text.count("\n") == 1
  strict = json.loads(text, parse_constant=pytest.fail)
  assert strict == {
    "loss": 0.25,
    "count": 3,
    "list": [0, 1],
    "bad": None,
    "worse": [None],
    "name": "ü\n<b>",
  }


def test_a_broken_line_is_named_and_left_out(tmp_path):
  path, problems = tmp_path / "metrics.jsonl", []
  path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
  assert read_metrics(tmp_path, problems) == [{"a": 1}, {"a": 3}]
  assert problems == [
    f"{path} is damaged: line 2 is not a JSON object, and is left out."
  ]


@pytest.mark.parametrize(
  ("line", "problem"),
  [
    ({"kind": "phase", "seed": 0, "phase": 0}, "line 2 lacks seconds"),
    (
      {"kind": "phase", "seed": 0, "phase": 0, "seconds": {"train": "long"}},
      "line 2.seconds.train has a wrong type",
    ),
    ({"kind": "epoch", "seed": "0"}, "line 2.seed has a wrong type"),
  ],
)
def test_fields_that_readers_rely_on_are_there(tmp_path, line, problem):
  lines = [{"kind": "of another program"}, line]
  text = "".join(f"{json.dumps(line)}\n" for line in lines)
  (tmp_path / "metrics.jsonl").write_text(text)
  problems = []
  assert read_metrics(tmp_path, problems) == lines[:1]
  assert problem in problems[0] and len(problems) == 1


def test_a_seed_goes_back_and_takes_no_other_with_it(tmp_path):
  line = lambda seed, epoch: {"seed": seed, "epoch": epoch}
  written = [line(0, 0), line(0, 1), line(1, 0), line(0, 2), line(1, 1)]
  with MetricsLog(tmp_path, tensorboard=False) as log:
    log.write(written[0])
    size = log.sync()
    for record in written[1:]:
      log.write(record)
    assert log.truncate(size, seed=0) == 0
    kept = [written[0], written[2], written[4]]
    assert read_metrics(tmp_path) == kept
    log.write(line(0, 1))  # It goes on behind them.
    assert read_metrics(tmp_path) == [*kept, line(0, 1)]
    assert log.truncate(log.sync(), seed=0) == 0
    assert log.truncate(log.sync() + 7, seed=0) == 7
    assert read_metrics(tmp_path) == [*kept, line(0, 1)]
    assert log.truncate(size, seed=0) == 0
    assert read_metrics(tmp_path) == kept


def test_no_file_means_no_records(tmp_path):
  assert read_metrics(tmp_path) == []


def test_closed_log_refuses(tmp_path):
  log = MetricsLog(tmp_path, tensorboard=False)
  with pytest.raises(ValueError, match="closed"):
    log.write({})


def _events(workdir):
  """What TensorBoard shows: tag, step and value, as often as written."""
  from tensorboardX.proto import event_pb2

  (file,) = (workdir / "tensorboard").iterdir()
  data, found, at = file.read_bytes(), [], 0
  while at < len(data):  # Record: length, checksum, event, checksum.
    length = int.from_bytes(data[at : at + 8], "little")
    event = event_pb2.Event.FromString(data[at + 12 : at + 12 + length])
    for value in event.summary.value:
      found.append((value.tag, event.step, value.simple_value))
    at += 16 + length
  return found


def test_tensorboard_gets_the_scalars(tmp_path):
  with MetricsLog(tmp_path) as log:
    log.write(
      {
        "kind": "epoch",
        "seed": 0,
        "phase": 1,
        "stage": "train",
        "epoch": 3,
        "loss": 0.5,
        "note": "text",
      }
    )
    log.write(
      {
        "kind": "phase",
        "seed": 0,
        "phase": 2,
        "accuracy": {"head": 0.75},
      }
    )
  assert sorted(_events(tmp_path)) == [
    ("seed_0/accuracy/head", 2, 0.75),
    ("seed_0/phase_1/train/loss", 3, 0.5),
  ]


def test_tensorboard_forgets_what_the_log_forgets(tmp_path):
  with MetricsLog(tmp_path) as log:
    log.write({"seed": 0, "epoch": 0, "loss": 4.0})
    size = log.sync()
    log.write({"seed": 0, "epoch": 1, "loss": 3.0})
  with MetricsLog(tmp_path) as log:
    log.truncate(size, seed=0)
    log.write({"seed": 0, "epoch": 1, "loss": 2.0})
  assert _events(tmp_path) == [
    ("seed_0/loss", 0, 4.0),
    ("seed_0/loss", 1, 2.0),
  ]
