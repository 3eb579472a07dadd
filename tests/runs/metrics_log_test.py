"""metrics.jsonl: whole lines only, whatever happened before."""

import json

import numpy as np
import pytest

from mnemonics_jax.runs.layout import WorkdirError
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


def test_broken_line_is_named(tmp_path):
  (tmp_path / "metrics.jsonl").write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
  with pytest.raises(WorkdirError, match="line 2 is not a JSON object"):
    read_metrics(tmp_path)


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
  with pytest.raises(WorkdirError, match=problem) as caught:
    read_metrics(tmp_path)
  assert caught.value.field == "metrics.jsonl"


def test_no_file_means_no_records(tmp_path):
  assert read_metrics(tmp_path) == []


def test_closed_log_refuses(tmp_path):
  log = MetricsLog(tmp_path, tensorboard=False)
  with pytest.raises(ValueError, match="closed"):
    log.write({})
