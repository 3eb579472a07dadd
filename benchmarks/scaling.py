"""The same batch on 1, 2, 4, 8 devices, and in two processes.

  python -m benchmarks.scaling            # about ten minutes
  python -m benchmarks.scaling --quick    # a few minutes, a small network

Devices are virtual: they share the processors of this machine, so this shows
that results are equal and what devices say to each other, not how fast eight
accelerators are. The step is that of a later phase (augmentation, teacher,
distillation), under a transfer guard: nothing passes between host and device.
"""

from pathlib import Path
import socket
from typing import Any

from benchmarks.measure import Benchmark, Command
from mnemonics_jax.runs import read_metrics

_STEPS = 4


def devices(bench: Benchmark) -> None:
  """Loss after four steps, its distance to one device's, and collectives."""
  network = "resnet8" if bench.options.quick else "resnet32"
  here = dict(path=str(bench.folder / "problem.npz"), network=network)
  bench.contestant("jax_train:write", images=512, **here).close()
  rows: list[dict[str, Any]] = []
  for count in map(int, bench.options.devices):
    step = dict(here, kind="phase", steps=_STEPS, devices=count)
    options = {str(count): dict(step, factory="jax_train:train_steps")}
    (one,) = bench.compare(options).values()
    loss = one.result / _STEPS
    row = {"devices": count, "seconds": one.best.seconds / _STEPS, "loss": loss}
    row["difference"] = abs(loss / rows[0]["loss"] - 1) if rows else 0.0
    row["moves"] = one.facts["moves"]
    rows.append(row | row["moves"])
  shown = {
    "devices": ("devices", "{}"),
    "seconds": ("seconds", "{:.3f}"),
    "loss": ("loss", "{:.6f}"),
    **_DIFFERENCE,
    **{name: (name, "{}") for name in rows[0]["moves"]},
  }
  bench.add("devices", f"{network}, phase step", rows, shown, network=network)


_DIFFERENCE = {"difference": ("difference", "{:.0e}")}


def two_processes(bench: Benchmark) -> None:
  """Largest relative differences of a loss of phase 0 to those of one process.

  That one has two devices, like the two together, or one device, which sums in
  another order.
  """
  with socket.socket() as free:
    free.bind(("localhost", 0))
    port = free.getsockname()[1]
  for count in (1, 2):
    _digits(bench.folder / str(count), devices=count).end()
  shared = f"--coordinator=localhost:{port}", "--num_processes=2"
  processes = [
    _digits(bench.folder / "pair", *shared, f"--process_id={i}")
    for i in range(2)
  ]
  for process in processes:
    process.end()
  pair = _losses(bench.folder / "pair")
  rows = [
    {
      "against": f"one process, {count} device{'s' * (count > 1)}",
      "difference": max(
        abs(b / a - 1)
        for a, b in zip(_losses(bench.folder / str(count)), pair, strict=True)
      ),
    }
    for count in (1, 2)
  ]
  title = "Losses of digits in two processes"
  shown = {"against": ("against", "{}"), **_DIFFERENCE}
  bench.add("two_processes", title, rows, shown)


def _digits(workdir: Path, *more: str, devices: int = 1) -> Command:
  count = f"--xla_force_host_platform_device_count={devices}"
  small = ("--images_per_class=40", "--phases=1", "--meta_epochs=2")
  place = (f"--workdir={workdir}", "--notensorboard")
  return Command(
    "digits", "--preset=smoke", *small, *place, *more, XLA_FLAGS=count
  )


def _losses(workdir: Path) -> list[float]:
  """Losses of the base phase's epochs; later, rounding has grown."""
  return [
    record["loss"]
    for record in read_metrics(workdir)
    if record["kind"] == "epoch" and record["phase"] == 0
    if record["stage"] == "train"
  ]


BENCHMARK = Benchmark(
  "scaling",
  dict(devices=devices, two_processes=two_processes),
  devices=(["1", "2", "4", "8"], "Numbers of devices to compare."),
)

if __name__ == "__main__":
  BENCHMARK.run()
