"""TensorBoard shows what metrics.jsonl has, and nothing else."""

from mnemonics_jax.runs.metrics_log import MetricsLog


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
