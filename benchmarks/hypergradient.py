"""What the meta step costs: time and memory against PyTorch.

  python -m benchmarks.hypergradient            # about half an hour
  python -m benchmarks.hypergradient --quick    # a minute, small shapes

One meta step is the validation loss after the base level and its gradient with
respect to the exemplars' pixels. PyTorch computes the same from the same weights
(`torch.func.functional_call`, `create_graph=True`), without checkpointing and not
compiled, for `torch.compile` knows no gradients of gradients. It is an optional
competitor: `pip install -e .[bench]`.
"""

from collections.abc import Callable
import contextlib
import dataclasses
import importlib.metadata
import importlib.util
import tempfile
from typing import Any

from absl import app, flags
import numpy as np

from benchmarks import measure
from benchmarks.measure import Contestant, ContestantError

_QUICK = flags.DEFINE_bool("quick", False, "Small shapes, one minute.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_PARTS = flags.DEFINE_list(
  "parts", ["meta", "head", "growth", "agreement"], "Tables to make."
)
_ROUNDS = flags.DEFINE_integer("rounds", 3, "Turns of each contestant.")
_INNER_STEPS = flags.DEFINE_multi_integer(
  "inner_steps", None, "Inner steps to measure, instead of the usual ones."
)
_THREADS = flags.DEFINE_integer("threads", 2, "Processors a contestant uses.")

REMATS = ("none", "step", "nested")


@dataclasses.dataclass(frozen=True)
class Plan:
  """What is measured; each dict holds arguments of `jax_resnet.Problem`.

  Attributes:
    meta: the meta step that trains everything, in float32.
    same: a smaller one, for comparing gradients in float64.
    head: the meta step that trains the head alone.
    inner_steps: of `meta` and `same`.
    head_steps: of `head`.
    growth: inner steps for which memory is compared.
    torch_growth: those among them that PyTorch runs, too.
  """

  meta: dict[str, Any]
  same: dict[str, Any]
  head: dict[str, Any]
  inner_steps: tuple[int, ...] = (5, 20)
  head_steps: int = 50
  growth: tuple[int, ...] = (1, 5, 10, 20, 40, 100)
  torch_growth: tuple[int, ...] = (10,)


FULL = Plan(
  meta=dict(network="resnet32", exemplars=100, valid=128),
  same=dict(network="resnet32", exemplars=20, valid=20),
  head=dict(network="resnet32", exemplars=1000, classes=50),
)
QUICK = Plan(
  meta=dict(network="resnet8", exemplars=10, valid=10),
  same=dict(network="resnet8", width=4, exemplars=10, valid=10),
  head=dict(network="resnet8", exemplars=50),
  inner_steps=(2, 4),
  head_steps=10,
  growth=(1, 4),
  torch_growth=(3,),
)


def main(_):
  plan = QUICK if _QUICK.value else FULL
  if _INNER_STEPS.value:
    plan = dataclasses.replace(plan, inner_steps=tuple(_INNER_STEPS.value))
  has_torch = importlib.util.find_spec("torch") is not None
  if not has_torch:
    print("PyTorch is not installed, so nothing is compared with it.")
    print("Install it with: pip install -e '.[bench]'\n")
  results = measure.Results(
    "hypergradient", _OUTPUT.value, _QUICK.value, _THREADS.value
  )
  facts = {"plan": dataclasses.asdict(plan)}
  part = lambda name, title, rows: results.add(
    name, title, rows, _shown, **facts
  )
  used = {}  # PyTorch's memory by inner steps.
  with tempfile.TemporaryDirectory() as folder:
    meta, same = (f"{folder}/{name}.npz" for name in ("meta", "same"))
    _ours("write", path=meta, problem=plan.meta).close()
    _ours("write", path=same, problem=plan.same).close()
    rivals = ["PyTorch", "PyTorch, channels last"] if has_torch else []
    if "meta" in _PARTS.value:
      for steps in plan.inner_steps:
        rows = meta_step(meta, plan.meta, steps, rivals)
        part(f"meta_step_{steps}", f"Meta step, {steps} inner steps", rows)
        # The slower layout has shown what it can do.
        times = {r["name"]: r.get("seconds", np.inf) for r in rows}
        rivals = sorted(rivals, key=lambda name: times[name])[:1]
        peaks = {r["name"]: r.get("peak_bytes") for r in rows}
        used.update((steps, peaks[name]) for name in rivals)
    if "head" in _PARTS.value:
      rows = head_step(plan)
      title = f'scope="head", {plan.head["exemplars"]} exemplars'
      part("head", f"{title}, {plan.head_steps} inner steps", rows)
    if "growth" in _PARTS.value:
      rows = growth(meta, plan, rivals, used)
      part("growth", "Memory of the meta step over inner steps", rows)
    if "agreement" in _PARTS.value and has_torch:
      rows = [agreement(same, plan.same, steps) for steps in plan.inner_steps]
      part("agreement", "Gradients of ours and PyTorch in float64", rows)


def agreement(path, problem, steps) -> dict[str, Any]:
  """Relative distance of our gradient and PyTorch's, in float64."""
  ours = dict(path=path, problem=problem, inner_steps=steps, double=True)
  torch = dict(path=path, inner_steps=steps, double=True)
  with (
    _ours("meta_step", remat="step", **ours) as a,
    _rival("PyTorch", **torch) as b,
  ):
    measure.take_turns({"a": a, "b": b}, 1)
    return {
      "inner steps": steps,
      "relative difference": _distance(a.result(), b.result()),
    }


def meta_step(path, problem, steps, rivals) -> list[dict[str, Any]]:
  """Time and peak memory of one meta step, with the best PyTorch as unit."""
  native, xla = ({"MNEMONICS_CPU_CONV": form} for form in ("native", "xla"))
  common = dict(path=path, inner_steps=steps)
  makers: dict[str, Callable[[], Contestant]] = {
    f'ours, remat="{remat}"': lambda remat=remat: _ours(
      "meta_step", problem=problem, remat=remat, environment=native, **common
    )
    for remat in REMATS
  }
  makers['ours, remat="step", without a compiler'] = lambda: _ours(
    "meta_step", problem=problem, remat="step", environment=xla, **common
  )
  threads = _THREADS.value
  if threads > 1:
    # Programs of one thread each, instead of threads that share every operation.
    makers |= {
      f'ours, remat="{remat}", {threads} virtual devices': lambda remat=remat: (
        _ours(
          "meta_step",
          problem=problem,
          remat=remat,
          devices=threads,
          environment=native,
          **common,
        )
      )
      for remat in ("none", "step")
    }
  makers = {
    name: lambda name=name: _rival(name, **common) for name in rivals
  } | makers
  rows, samples, results, facts = [], {}, {}, {}
  with contextlib.ExitStack() as stack:
    contestants = {k: stack.enter_context(v()) for k, v in makers.items()}
    for _ in range(_ROUNDS.value):
      for name in list(contestants):
        try:
          sample = contestants[name].turn()
        except ContestantError as error:
          print(f"{name}: {error}")
          del contestants[name]
          continue
        samples.setdefault(name, []).append(sample)
    for name, contestant in contestants.items():
      results[name] = contestant.result()
      facts[name] = contestant.facts
  bests = {name: measure.best(samples[name]) for name in results}
  rivals = [name for name in rivals if name in bests]
  rival = min(rivals, key=lambda name: bests[name].seconds, default=None)
  for name in makers:
    if name not in bests:
      rows.append({"name": name, "failed": True})
      continue
    row = {"name": name, **bests[name]._asdict()}
    row["compile_seconds"] = facts[name].get("compile_seconds")
    if rival is not None:
      row["speed"] = bests[rival].seconds / bests[name].seconds
      row["memory"] = bests[name].peak_bytes / bests[rival].peak_bytes
      row["difference"] = _distance(results[name], results[rival])
    row["samples"] = samples[name]
    rows.append(row)
  return rows


def growth(path, plan, rivals, used) -> list[dict[str, Any]]:
  """Bytes the compiler allots per remat, and what PyTorch was seen to use."""
  lengths = plan.growth
  with _ours("memory", problem=plan.meta, lengths=lengths) as compiler:
    allotted: dict[Any, Any] = compiler.facts
  rows = [
    {"inner steps": n} | {remat: allotted[remat, n] for remat in REMATS}
    for n in lengths
  ]
  if not rivals:
    return rows
  for n in plan.torch_growth:
    with _rival(rivals[0], path=path, inner_steps=n) as rival:
      used = used | {n: rival.turn().peak_bytes}
  return [row | {"PyTorch": used.get(row["inner steps"])} for row in rows]


def head_step(plan) -> list[dict[str, Any]]:
  """The head's meta step against one pass of the exemplars alone."""
  with (
    _ours("backbone_step", problem=plan.head) as backbone,
    _ours(
      "head_step", problem=plan.head, inner_steps=plan.head_steps, cached=4096
    ) as head,
  ):
    names = {
      "forward + backward of the exemplars": backbone,
      "meta step": head,
    }
    samples = measure.take_turns(names, _ROUNDS.value)
    bests = {name: measure.best(turns) for name, turns in samples.items()}
    unit = next(iter(bests.values())).seconds
    return [
      {"name": name, **sample._asdict()}
      | {"time": sample.seconds / unit, "samples": samples[name]}
      | {"compile_seconds": names[name].facts["compile_seconds"]}
      for name, sample in bests.items()
    ]


def _ours(function, **kwargs) -> Contestant:
  return Contestant(
    f"benchmarks.jax_resnet:{function}", threads=_THREADS.value, **kwargs
  )


def _rival(name, **kwargs) -> Contestant:
  return Contestant(
    "benchmarks.torch_resnet:meta_step",
    threads=_THREADS.value,
    channels_last="channels last" in name,
    **kwargs,
  )


def _distance(a, b) -> float:
  return float(np.linalg.norm(a[1] - b[1]) / np.linalg.norm(b[1]))


_SHOWN = {
  "name": ("", "{}"),
  "seconds": ("seconds", "{:.2f}"),
  "cpu_seconds": ("CPU seconds", "{:.1f}"),
  "time": ("time", "{:.2f}×"),
  "speed": ("speed", "{:.2f}×"),
  "peak_bytes": ("peak memory", "{:,.0f} MiB"),
  "memory": ("memory", "{:.0%}"),
  "compile_seconds": ("compile", "{:.1f} s"),
  "difference": ("difference", "{:.1e}"),
  "inner steps": ("inner steps", "{}"),
  "relative difference": ("relative difference", "{:.1e}"),
  **{k: (k, "{:,.0f} MiB") for k in (*REMATS, "PyTorch")},
}
_BYTES = ("peak_bytes", *REMATS, "PyTorch")


def _shown(row) -> dict[str, str]:
  """The columns of a row that a reader wants to see, formatted."""
  if row.get("failed"):
    return {"": row["name"]} | {
      _SHOWN[k][0]: "failed"
      for k in ("seconds", "cpu_seconds", "peak_bytes", "compile_seconds")
    }
  shown = {}
  for key, (title, form) in _SHOWN.items():
    if key in row:
      value = row[key]
      if value is not None and key in _BYTES:
        value /= 2**20
      shown[title] = "" if value is None else form.format(value)
  return shown


if __name__ == "__main__":
  app.run(main)
