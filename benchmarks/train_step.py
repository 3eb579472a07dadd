"""What training steps cost, against PyTorch and plain `lax.conv`.

  python -m benchmarks.train_step            # about ten minutes
  python -m benchmarks.train_step --quick    # a minute, a small network

ResNet-32, 128 CIFAR-shaped images, forward, backward and SGD update:

- plain: cross-entropy;
- phase: what a later phase does, with augmentation, teacher and distillation;
- in_out, out: weight transfer over frozen kernels.

Ours are the compiled steps of `phase.fit`, on one device or on one virtual
device per processor, with kernels of our own or, as without a C++ compiler, XLA's.
PyTorch runs in both layouts, and compiled in the better one. Then a profile of the
plain step; the last table is the share of an epoch that, by the profiler, is not
within steps.
"""

from typing import Any

from benchmarks.measure import Benchmark, has_torch

_RIVALS = (
  "PyTorch",
  "PyTorch, channels last",
  "PyTorch, channels last, torch.compile",
)
_BATCH = 128
# Multiply-adds of a forward pass of one image.
_MACS = {"resnet32": 69.1e6, "resnet8": 12.4e6}
# Passes as long as a forward pass: forward, inputs' gradient, kernels' gradient,
# and the teacher's forward.
_PASSES = {"plain": 3, "phase": 4, "in_out": 3, "out": 2}


def steps(bench: Benchmark) -> None:
  """A table for each kind of step; the best PyTorch is the unit."""
  torch = has_torch()
  peak = _peak(bench, torch)
  print(f"Matrix products: {peak / 1e9:.0f} GFLOP/s\n", flush=True)
  for kind in bench.options.kinds:
    rows = _compare(bench, kind, torch, peak)
    _add(bench, kind, f"{kind} step", rows, peak_flops=peak)


def _peak(bench: Benchmark, torch: bool) -> float:
  """The fastest matrix product of either library, in FLOP/s."""
  size, repeats = 2048, 4
  libraries = ["jax_train", *(["torch_models"] if torch else [])]
  options = dict(size=size, repeats=repeats)
  found = bench.compare(
    {name: dict(options, factory=f"{name}:gemm") for name in libraries}
  )
  seconds = min(one.best.seconds for one in found.values())
  return 2 * size**3 * repeats / seconds


def _compare(bench, kind, torch, peak) -> list[dict[str, Any]]:
  steps = 2 if bench.options.quick else 4
  common = dict(path=_images(bench, 512), kind=kind, steps=steps)
  ours = dict(common, factory="jax_train:train_steps", network=_network(bench))
  many = bench.options.threads
  native, xla = (
    dict(ours, environment={"MNEMONICS_CPU_CONV": form})
    for form in ("native", "xla")
  )
  entrants = {
    "ours": native,
    "ours, without a compiler": xla,
    f"ours, {many} virtual devices": dict(native, devices=many),
    "ours as a command without a compiler runs it": dict(
      xla, devices=many, keep_memory=True
    ),
    "flax, plain lax.conv": dict(ours, factory="jax_train:plain_steps"),
  }
  rivals = _RIVALS if torch else ()
  for name in rivals:
    entrants[name] = dict(
      common,
      factory="torch_models:train_steps",
      channels_last="last" in name,
      compiled="compile" in name,
    )
  found = bench.compare(entrants, warm_up=True)
  times = [found[name].best.seconds for name in rivals if name in found]
  unit = min(times, default=None)
  flops = 2 * _MACS[_network(bench)] * _BATCH * _PASSES[kind] * steps
  return [
    {
      "name": name,
      "seconds": one.best.seconds / steps,
      "cpu_seconds": one.best.cpu_seconds / steps,
      "images_per_second": _BATCH * steps / one.best.seconds,
      "time": one.best.seconds / unit if unit else None,
      "peak_share": flops / one.best.seconds / peak,
      "first_loss": one.result / steps,
      "compile_seconds": one.facts.get("compile_seconds"),
      "samples": one.samples,
    }
    for name, one in found.items()
  ]


def profile(bench: Benchmark) -> None:
  """Seconds of the plain step by its parts; of several, the fastest profile."""
  makers = {"ours": ("jax_train:profile", {"network": _network(bench)})}
  if has_torch():
    makers["torch"] = ("torch_models:profile", {})
  columns = {}
  for name, (factory, more) in makers.items():
    options = dict(path=_images(bench, 512), kind="plain", steps=4, **more)
    with bench.contestant(factory, **options) as one:
      turns = [one.turn() and one.result() for _ in range(bench.rounds)]
    columns[name] = min(
      turns,
      key=lambda parts: sum(
        seconds for part, seconds in parts.items() if "of these" not in part
      ),
    )
  rows = [
    {"name": part, **{name: parts.get(part) for name, parts in columns.items()}}
    for part in columns["ours"]
  ]
  _add(bench, "profile", "where the time of the plain step goes", rows)


def epoch(bench: Benchmark) -> None:
  """The share of an epoch between its steps."""
  size = 2048
  options = dict(path=_images(bench, size), network=_network(bench))
  with bench.contestant("jax_train:epoch", **options) as one:
    turns = [one.turn() and one.result() for _ in range(bench.rounds)]
  wall, busy = min(turns, key=lambda turn: 1 - turn[1] / turn[0])
  row = {"wall": wall, "busy": busy, "gap": 1 - busy / wall}
  _add(bench, "epoch", f"an epoch of {size} images", [row])


def _network(bench: Benchmark) -> str:
  return "resnet8" if bench.options.quick else "resnet32"


def _images(bench: Benchmark, count: int) -> str:
  """The file of a model and of images, which contestants read."""
  path = bench.folder / f"{count}.npz"
  if not path.exists():
    options = dict(path=str(path), network=_network(bench), images=count)
    bench.contestant("jax_train:write", **options).close()
  return str(path)


def _add(bench, name, title, rows, **facts):
  network = _network(bench)
  title = f"{network}, {title}"
  bench.add(name, title, rows, _SHOWN, network=network, **facts)


_SHOWN = {
  "name": ("", "{}"),
  "seconds": ("seconds", "{:.3f}"),
  "cpu_seconds": ("CPU seconds", "{:.2f}"),
  "ours": ("ours", "{:.3f} s"),
  "torch": ("PyTorch, channels last", "{:.3f} s"),
  "images_per_second": ("images/s", "{:.0f}"),
  "time": ("time", "{:.2f}×"),
  "peak_share": ("of peak", "{:.0%}"),
  "first_loss": ("first loss", "{:.4f}"),
  "compile_seconds": ("compile", "{:.1f} s"),
  "wall": ("epoch", "{:.1f} s"),
  "busy": ("in steps", "{:.1f} s"),
  "gap": ("gap", "{:.2%}"),
}

BENCHMARK = Benchmark(
  "train_step",
  dict(steps=steps, profile=profile, epoch=epoch),
  rounds=(5, "Turns of each contestant; the fastest counts."),
  kinds=(["plain", "phase", "in_out", "out"], "Steps to measure."),
)

if __name__ == "__main__":
  BENCHMARK.run()
