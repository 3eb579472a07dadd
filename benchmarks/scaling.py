"""The same batch on 1, 2, 4, 8 devices, and in two processes.

  python -m benchmarks.scaling            # about ten minutes
  python -m benchmarks.scaling --quick    # a few minutes, a small network

Devices are virtual: they share the processors of this machine, so this shows
that results are equal and what devices say to each other, not how fast eight
accelerators are. The step is that of a later phase (augmentation, teacher,
distillation), under a transfer guard: nothing passes between host and device.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from typing import Any

from absl import app, flags

from benchmarks import measure
from benchmarks.measure import Contestant
from mnemonics_jax.runs import read_metrics

_QUICK = flags.DEFINE_bool("quick", False, "ResNet-8.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_DEVICES = flags.DEFINE_multi_integer(
  "devices", [1, 2, 4, 8], "Numbers of devices to compare."
)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Turns of each contestant.")
_THREADS = flags.DEFINE_integer("threads", 2, "Processors a contestant uses.")
_STEPS = 4

_ROOT = pathlib.Path(__file__).parents[1]


def main(_):
  network = "resnet8" if _QUICK.value else "resnet32"
  results = measure.Results(
    "scaling", _OUTPUT.value, _QUICK.value, _THREADS.value
  )
  with tempfile.TemporaryDirectory() as folder:
    results.add(
      "devices",
      f"{network}, phase step",
      virtual_devices(f"{folder}/problem.npz", network),
      lambda row: {
        "devices": row["devices"],
        "seconds": f"{row['seconds']:.3f}",
        "loss": f"{row['loss']:.6f}",
        "difference": f"{row['difference']:.0e}",
        **row["moves"],
      },
      network=network,
    )
    results.add(
      "two_processes",
      "Losses of digits in two processes",
      two_processes(pathlib.Path(folder)),
      lambda row: {
        "against": row["against"],
        "difference": f"{row['difference']:.0e}",
      },
    )


def virtual_devices(path: str, network: str) -> list[dict[str, Any]]:
  """Loss after four steps, its distance to one device's, and collectives."""
  here = dict(path=path, network=network)
  make = lambda factory, **more: Contestant(
    f"benchmarks.jax_train:{factory}", threads=_THREADS.value, **here, **more
  )
  make("write", images=512).close()
  rows = []
  for count in _DEVICES.value:
    with make("train_steps", kind="phase", steps=_STEPS, devices=count) as c:
      first = c.turn()
      loss = c.result() / _STEPS
      turns = [first, *(c.turn() for _ in range(_ROUNDS.value - 1))]
      rows.append(
        {
          "devices": count,
          "seconds": measure.best(turns).seconds / _STEPS,
          "loss": loss,
          "difference": abs(loss / rows[0]["loss"] - 1) if rows else 0.0,
          "moves": c.facts["moves"],
        }
      )
  return rows


def two_processes(folder: pathlib.Path) -> list[dict[str, Any]]:
  """Largest relative differences of a loss of phase 0 to those of one process.

  That one has two devices, like the two together, or one device, which sums in
  another order.
  """
  with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
  for devices in (1, 2):
    _wait(_digits(folder / str(devices), devices=devices))
  processes = [
    _digits(
      folder / "pair",
      f"--coordinator=localhost:{port}",
      "--num_processes=2",
      f"--process_id={i}",
    )
    for i in range(2)
  ]
  for process in processes:
    _wait(process)
  pair = _losses(folder / "pair")
  return [
    {
      "against": f"one process, {devices} device{'s' * (devices > 1)}",
      "difference": max(
        abs(b / a - 1)
        for a, b in zip(_losses(folder / str(devices)), pair, strict=True)
      ),
    }
    for devices in (1, 2)
  ]


def _digits(workdir, *more, devices=1):
  count = f"--xla_force_host_platform_device_count={devices}"
  small = ["--images_per_class=40", "--phases=1", "--meta_epochs=2"]
  return subprocess.Popen(
    [
      *(sys.executable, "-m", "experiments.digits", "--preset=smoke"),
      *(*small, f"--workdir={workdir}", "--notensorboard", *more),
    ],
    cwd=_ROOT,
    env=os.environ | {"PYTHONPATH": str(_ROOT), "XLA_FLAGS": count},
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )


def _wait(process):
  text, _ = process.communicate()
  if process.returncode:
    raise RuntimeError(text)


def _losses(workdir):
  """Losses of the base phase's epochs; later, rounding has grown."""
  return [
    record["loss"]
    for record in read_metrics(workdir)
    if record["kind"] == "epoch" and record["phase"] == 0
    if record["stage"] == "train"
  ]


if __name__ == "__main__":
  app.run(main)
