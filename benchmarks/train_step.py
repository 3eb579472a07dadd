"""What training steps cost, against PyTorch and plain `lax.conv`.

  python -m benchmarks.train_step            # about ten minutes
  python -m benchmarks.train_step --quick    # a minute, a small network

ResNet-32, 128 CIFAR-shaped images, forward, backward and SGD update:

- plain: cross-entropy;
- phase: what a later phase does, with augmentation, teacher and distillation;
- in_out, out: weight transfer over frozen kernels.

Ours are the compiled steps of `phase.fit`, on one device or on one virtual
device per processor, with kernels of our own or, as without a C++ compiler, XLA's.
PyTorch runs in both layouts, and compiled in the better one. Then a profile of the plain step; the last table is the
share of an epoch that, by the profiler, is not within steps.
"""

import contextlib
import importlib.metadata
import importlib.util
import tempfile
from typing import Any

from absl import app, flags

from benchmarks import measure
from benchmarks.measure import Contestant, ContestantError

_QUICK = flags.DEFINE_bool("quick", False, "ResNet-8, one minute.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_KINDS = flags.DEFINE_list(
  "kinds", ["plain", "phase", "in_out", "out"], "Steps to measure."
)
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each contestant.")
_THREADS = flags.DEFINE_integer("threads", 2, "Processors a contestant uses.")

_RIVALS = [
  "PyTorch",
  "PyTorch, channels last",
  "PyTorch, channels last, torch.compile",
]
_BATCH = 128
# Multiply-adds of a forward pass of one image.
_MACS = {"resnet32": 69.1e6, "resnet8": 12.4e6}
# Passes as long as a forward pass: forward, inputs' gradient, kernels' gradient,
# and the teacher's forward.
_PASSES = {"plain": 3, "phase": 4, "in_out": 3, "out": 2}


def main(_):
  network = "resnet8" if _QUICK.value else "resnet32"
  steps = 2 if _QUICK.value else 4
  has_torch = importlib.util.find_spec("torch") is not None
  if not has_torch:
    print("PyTorch is not installed: pip install -e '.[bench]'\n")
  results = measure.Results(
    "train_step", _OUTPUT.value, _QUICK.value, _THREADS.value
  )
  peak = _peak(has_torch)
  part = lambda name, title, rows: results.add(
    name, title, rows, _shown, network=network, peak_flops=peak
  )
  print(f"Matrix products: {peak / 1e9:.0f} GFLOP/s\n", flush=True)
  with tempfile.TemporaryDirectory() as folder:
    path = f"{folder}/problem.npz"
    _contestant(
      "jax_train:write", path=path, network=network, images=512
    ).close()
    for kind in _KINDS.value:
      rows = _compare(path, network, kind, steps, has_torch, peak)
      part(kind, f"{network}, {kind} step", rows)
    rows = _profile(path, network, has_torch)
    part("profile", f"Where the time of {network}'s plain step goes", rows)
    long = f"{folder}/epoch.npz"
    size = 2048
    _contestant(
      "jax_train:write", path=long, network=network, images=size
    ).close()
    part("epoch", f"An epoch of {size} images", [_gap(long, network)])


def _contestant(factory, **kwargs):
  return Contestant(f"benchmarks.{factory}", threads=_THREADS.value, **kwargs)


def _peak(has_torch) -> float:
  """The fastest matrix product of either library, in FLOP/s."""
  size, repeats = 2048, 4
  flops = 2 * size**3 * repeats
  best = []
  for library in ["jax_train", *(["torch_train"] if has_torch else [])]:
    with _contestant(f"{library}:gemm", size=size, repeats=repeats) as c:
      turns = [c.turn() for _ in range(_ROUNDS.value)]
      best.append(flops / measure.best(turns).seconds)
  return max(best)


def _compare(path, network, kind, steps, has_torch, peak):
  """A row for each contestant, with the best PyTorch as unit."""
  ours = dict(path=path, network=network, kind=kind, steps=steps)
  many = _THREADS.value
  native, xla = ({"MNEMONICS_CPU_CONV": form} for form in ("native", "xla"))
  makers = {
    "ours": lambda: _contestant(
      "jax_train:train_steps", environment=native, **ours
    ),
    "ours, without a compiler": lambda: _contestant(
      "jax_train:train_steps", environment=xla, **ours
    ),
    f"ours, {many} virtual devices": lambda: _contestant(
      "jax_train:train_steps", environment=native, devices=many, **ours
    ),
    "ours as a command without a compiler runs it": lambda: _contestant(
      "jax_train:train_steps",
      environment=xla,
      devices=many,
      keep_memory=True,
      **ours,
    ),
    "flax, plain lax.conv": lambda: _contestant(
      "jax_train:plain_steps", **ours
    ),
  }
  rivals = _RIVALS if has_torch else []
  for name in rivals:
    makers[name] = lambda name=name: _contestant(
      "torch_train:train_steps", path=path, kind=kind, steps=steps,
      channels_last="last" in name, compiled="compile" in name,
    )  # fmt: skip
  with contextlib.ExitStack() as stack:
    contestants, first = {}, {}
    for name, make in makers.items():
      try:
        contestant = stack.enter_context(make())
        contestant.turn()
      except ContestantError as error:  # Not all of them run everywhere.
        print(f"{name} failed: {str(error).splitlines()[-1]}\n", flush=True)
        continue
      contestants[name], first[name] = contestant, contestant.result()
    samples = measure.take_turns(contestants, _ROUNDS.value)
    facts = {name: c.facts for name, c in contestants.items()}
  bests = {name: measure.best(turns) for name, turns in samples.items()}
  unit = min((bests[r].seconds for r in rivals if r in bests), default=None)
  flops = 2 * _MACS[network] * _BATCH * _PASSES[kind] * steps
  return [
    {
      "name": name,
      "seconds": best.seconds / steps,
      "cpu_seconds": best.cpu_seconds / steps,
      "images_per_second": _BATCH * steps / best.seconds,
      "time": best.seconds / unit if unit else None,
      "peak_share": flops / best.seconds / peak,
      "first_loss": first[name] / steps,
      "compile_seconds": facts[name].get("compile_seconds"),
      "samples": samples[name],
    }
    for name, best in bests.items()
  ]


def _profile(path, network, has_torch):
  """Seconds of the plain step by its parts; of several, the fastest profile."""
  makers = {"ours": ("jax_profile:profile", {"network": network})}
  if has_torch:
    makers["torch"] = ("torch_train:profile", {})
  columns = {}
  for name, (factory, more) in makers.items():
    with _contestant(factory, path=path, kind="plain", steps=4, **more) as c:
      turns = [c.turn() and c.result() for _ in range(_ROUNDS.value)]
    columns[name] = min(
      turns,
      key=lambda parts: sum(
        seconds for part, seconds in parts.items() if "of these" not in part
      ),
    )
  return [
    {"name": part}
    | {name: column.get(part) for name, column in columns.items()}
    for part in columns["ours"]
  ]


def _gap(path, network) -> dict[str, Any]:
  """The share of an epoch between its steps."""
  with _contestant("jax_profile:epoch", path=path, network=network) as c:
    turns = [c.turn() and c.result() for _ in range(_ROUNDS.value)]
  wall, busy = min(turns, key=lambda turn: 1 - turn[1] / turn[0])
  return {"wall": wall, "busy": busy, "gap": 1 - busy / wall}


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


def _shown(row):
  return {
    title: "" if row[key] is None else form.format(row[key])
    for key, (title, form) in _SHOWN.items()
    if key in row
  }


if __name__ == "__main__":
  app.run(main)
