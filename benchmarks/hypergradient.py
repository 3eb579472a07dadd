"""What the meta step costs: time and memory against PyTorch.

  python -m benchmarks.hypergradient                  # about half an hour
  python -m benchmarks.hypergradient --quick          # a minute, small shapes
  python -m benchmarks.hypergradient --parts=chunks   # several minutes: it compiles

One meta step is the validation loss after the base level and its gradient with
respect to the exemplars' pixels. PyTorch computes the same from the same weights
(`torch.func.functional_call`, `create_graph=True`), without checkpointing and not
compiled, for `torch.compile` knows no gradients of gradients. It is an optional
competitor: `pip install -e .[bench]`.

The part `chunks` runs nothing: the compiler says how much memory ImageNet's ResNet-18
needs. Exemplars are learned for some classes at a time (`--exemplar_chunk`), 20 images
each at 224×224 pixels, with the whole network unrolled.
"""

import dataclasses
from typing import Any

import numpy as np

from benchmarks.measure import Benchmark, has_torch, mebibytes

REMATS = ("none", "step", "nested")
_RIVALS = ("PyTorch", "PyTorch, channels last")


@dataclasses.dataclass(frozen=True)
class Sizes:
  """What is measured; each dict holds arguments of `jax_meta.Problem`.

  Attributes:
    meta: the meta step that trains everything, in float32.
    same: a smaller one, for comparing gradients in float64.
    head: the meta step that trains the head alone.
    inner_steps: of `meta` and `same`.
    head_steps: of `head`.
    growth: inner steps for which memory is compared.
    torch_growth: those among them that PyTorch runs, too.
    image_size: of the part `chunks`.
  """

  meta: dict[str, Any]
  same: dict[str, Any]
  head: dict[str, Any]
  inner_steps: tuple[int, ...] = (5, 20)
  head_steps: int = 50
  growth: tuple[int, ...] = (1, 5, 10, 20, 40, 100)
  torch_growth: tuple[int, ...] = (10,)
  image_size: int = 224


FULL = Sizes(
  meta=dict(network="resnet32", exemplars=100, valid=128),
  same=dict(network="resnet32", exemplars=20, valid=20),
  head=dict(network="resnet32", exemplars=1000, classes=50),
)
QUICK = Sizes(
  meta=dict(network="resnet8", exemplars=10, valid=10),
  same=dict(network="resnet8", width=4, exemplars=10, valid=10),
  head=dict(network="resnet8", exemplars=50),
  inner_steps=(2, 4),
  head_steps=10,
  growth=(1, 4),
  torch_growth=(3,),
  image_size=64,
)


def _sizes(bench: Benchmark) -> Sizes:
  sizes = QUICK if bench.options.quick else FULL
  if asked := bench.options.inner_steps:
    return dataclasses.replace(sizes, inner_steps=tuple(map(int, asked)))
  return sizes


def meta(bench: Benchmark) -> None:
  """Time and peak memory of one meta step, with the best PyTorch as unit."""
  sizes, rivals = _sizes(bench), list(_RIVALS if has_torch() else ())
  path = _problem(bench, "meta", sizes.meta)
  for steps in sizes.inner_steps:
    rows = _meta_rows(bench, path, sizes.meta, steps, rivals)
    title = f"Meta step, {steps} inner steps"
    _add(bench, f"meta_step_{steps}", title, rows)
    # The slower layout has shown what it can do.
    seconds = {row["name"]: row["seconds"] for row in rows}
    rivals = [name for name in rivals if name in seconds]
    rivals = sorted(rivals, key=seconds.__getitem__)[:1]


def _meta_rows(bench, path, problem, steps, rivals) -> list[dict[str, Any]]:
  threads = bench.options.threads
  native, xla = ({"MNEMONICS_CPU_CONV": form} for form in ("native", "xla"))
  common = dict(path=path, inner_steps=steps)
  ours = dict(factory="jax_meta:meta_step", problem=problem, **common)
  step = dict(ours, remat="step")
  entrants = {name: _rival(name, **common) for name in rivals} | {
    f'ours, remat="{remat}"': dict(ours, remat=remat, environment=native)
    for remat in REMATS
  }
  entrants['ours, remat="step", without a compiler'] = dict(
    step, environment=xla
  )
  if threads > 1:
    # Programs of one thread each, instead of threads that share every operation.
    entrants |= {
      f'ours, remat="{remat}", {threads} virtual devices': dict(
        ours, remat=remat, devices=threads, environment=native
      )
      for remat in ("none", "step")
    }
  found = bench.compare(entrants)
  rivals = [name for name in rivals if name in found]
  unit = min(rivals, key=lambda name: found[name].best.seconds, default=None)
  rows = []
  for name, one in found.items():
    row = {"name": name, **one.best._asdict()}
    row["compile_seconds"] = one.facts.get("compile_seconds")
    if unit is not None:
      rival = found[unit]
      row["speed"] = rival.best.seconds / one.best.seconds
      row["memory"] = one.best.peak_bytes / rival.best.peak_bytes
      row["difference"] = _distance(one.result, rival.result)
    rows.append(row | {"samples": one.samples})
  return rows


def head(bench: Benchmark) -> None:
  """The head's meta step against one pass of the exemplars alone."""
  sizes = _sizes(bench)
  ours = dict(problem=sizes.head)
  found = bench.compare(
    {
      "forward + backward of the exemplars": dict(
        ours, factory="jax_meta:backbone_step"
      ),
      "meta step": dict(
        ours,
        factory="jax_meta:head_step",
        inner_steps=sizes.head_steps,
        cached=4096,
      ),
    }
  )
  unit = next(iter(found.values())).best.seconds
  rows = [
    {"name": name, **one.best._asdict()}
    | {"time": one.best.seconds / unit, "samples": one.samples}
    | {"compile_seconds": one.facts["compile_seconds"]}
    for name, one in found.items()
  ]
  title = f'scope="head", {sizes.head["exemplars"]} exemplars'
  _add(bench, "head", f"{title}, {sizes.head_steps} inner steps", rows)


def growth(bench: Benchmark) -> None:
  """Bytes the compiler allots per remat, and what PyTorch was seen to use."""
  sizes = _sizes(bench)
  lengths, used = sizes.growth, {}
  options = dict(problem=sizes.meta, lengths=lengths)
  with bench.contestant("jax_meta:memory", **options) as compiler:
    allotted: dict[Any, Any] = compiler.facts
  if has_torch():
    path = _problem(bench, "meta", sizes.meta)
    for n in sorted({*sizes.inner_steps, *sizes.torch_growth}):
      options = _rival(_RIVALS[-1], path=path, inner_steps=n)
      with bench.contestant(**options) as rival:
        used[n] = rival.turn().peak_bytes
  rows = [
    {"inner steps": n, **{remat: allotted[remat, n] for remat in REMATS}}
    | ({"PyTorch": used.get(n)} if used else {})
    for n in lengths
  ]
  _add(bench, "growth", "Memory of the meta step over inner steps", rows)


def agreement(bench: Benchmark) -> None:
  """Relative distance of our gradient and PyTorch's, in float64."""
  if not has_torch():
    return
  sizes, rows = _sizes(bench), []
  path = _problem(bench, "same", sizes.same)
  for steps in sizes.inner_steps:
    common = dict(path=path, inner_steps=steps, double=True)
    ours = dict(common, factory="jax_meta:meta_step", problem=sizes.same)
    found = bench.compare(
      {"ours": dict(ours, remat="step"), "PyTorch": _rival("", **common)}
    )
    distance = _distance(found["ours"].result, found["PyTorch"].result)
    rows.append({"inner steps": steps, "relative difference": distance})
  title = "Gradients of ours and PyTorch in float64"
  _add(bench, "agreement", title, rows)


def chunks(bench: Benchmark) -> None:
  """Memory of ResNet-18's meta step, and the data beside it, by classes per chunk."""
  options, rows = bench.options, []
  size = _sizes(bench).image_size
  for chunk in map(int, options.chunk):
    exemplars = chunk * options.per_class
    data = chunk * options.images_per_class * size * size * 3
    with bench.contestant(
      "jax_meta:chunk_memory",
      image_size=size,
      classes=options.classes,
      exemplars=exemplars,
      valid=options.valid,
      inner_steps=options.unrolled,
    ) as compiler:
      used = compiler.facts
    both = {"data": data, "both": used["meta_step"] + data}
    rows.append({"chunk": chunk, "exemplars": exemplars, **used, **both})
  title = f"ResNet-18, {size}×{size}"
  facts = dict(image_size=size, inner_steps=options.unrolled)
  bench.add("memory", title, rows, _SHOWN, **facts)


def _problem(bench: Benchmark, name: str, problem: dict[str, Any]) -> str:
  """The file of a problem, which its contestants read."""
  path = bench.folder / f"{name}.npz"
  if not path.exists():
    options = dict(path=str(path), problem=problem)
    bench.contestant("jax_meta:write", **options).close()
  return str(path)


def _rival(name: str, **options: Any) -> dict[str, Any]:
  last = "channels last" in name
  return dict(factory="torch_models:meta_step", channels_last=last, **options)


def _distance(a, b) -> float:
  return float(np.linalg.norm(a[1] - b[1]) / np.linalg.norm(b[1]))


def _add(bench, name, title, rows):
  bench.add(name, title, rows, _SHOWN, plan=dataclasses.asdict(_sizes(bench)))


def _gibibytes(count: float) -> str:
  return f"{count / 2**30:.1f} GiB"


_SHOWN = {
  "name": ("", "{}"),
  "seconds": ("seconds", "{:.2f}"),
  "cpu_seconds": ("CPU seconds", "{:.1f}"),
  "time": ("time", "{:.2f}×"),
  "speed": ("speed", "{:.2f}×"),
  "peak_bytes": ("peak memory", mebibytes),
  "memory": ("memory", "{:.0%}"),
  "difference": ("difference", "{:.1e}"),
  "inner steps": ("inner steps", "{}"),
  "relative difference": ("relative difference", "{:.1e}"),
  **{name: (name, mebibytes) for name in (*REMATS, "PyTorch")},
  "chunk": ("classes per chunk", "{}"),
  "exemplars": ("exemplars", "{:,}"),
  "meta_step": ("meta step", _gibibytes),
  "data": ("data of the classes", _gibibytes),
  "both": ("both", _gibibytes),
  "compile_seconds": ("compile", "{:.1f} s"),
}

BENCHMARK = Benchmark(
  "hypergradient",
  dict(meta=meta, head=head, growth=growth, agreement=agreement, chunks=chunks),
  inner_steps=(list, "Inner steps to measure, instead of the usual ones."),
  chunk=(["100", "20", "10", "5", "2"], "Classes learned at once (chunks)."),
  per_class=(20, "Exemplars of a class (chunks)."),
  classes=(100, "Classes of the head (chunks)."),
  unrolled=(50, "Inner steps (chunks)."),
  valid=(128, "Validation images per meta step (chunks)."),
  images_per_class=(1300, "Training images of a class, as uint8 (chunks)."),
)

if __name__ == "__main__":
  BENCHMARK.run()
