"""How fast photographs can be read, and whether training has to wait for them.

  python -m benchmarks.input                    # photographs that it makes, minutes
  python -m benchmarks.input --data_dir=DIR     # a prepared ImageNet
  python -m benchmarks.input --quick            # a minute

Four tables: what one core does in a second, what worker processes do together, how
many cores would keep an accelerator busy, and the share of its time for which a
training loop waits. `streaming` measures the memory of runs.
"""

from collections.abc import Callable, Generator
import contextlib
import dataclasses
import functools
import importlib.util
import io
import math
from pathlib import Path
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import psutil

from benchmarks import jax_train
from benchmarks.measure import Benchmark, machine
from mnemonics_jax import data, phase
from mnemonics_jax.data import imagenet, images, views
from mnemonics_jax.data.prepare import prepare_imagenet
from mnemonics_jax.data.shards import Shards, read_index
from mnemonics_jax.data.workers import Pool
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.augment import NoAugmentation
from mnemonics_jax.nn.model import Model

# Training ResNet-18 at 224×224 takes 3 passes of 1.82e9 multiply-adds an image.
_FLOP_PER_IMAGE = 3 * 2 * 1.82e9
# bfloat16, as their makers state.
_PEAK_FLOPS = {"A100": 312e12, "TPU v5e-8": 8 * 197e12}
_UTILISATIONS = (0.15, 0.30)  # Assumed: of small convolutions, not of GEMMs.


@functools.cache
def _prepared(bench: Benchmark) -> Path:
  """A prepared directory: of --data_dir, or photographs of ImageNet's usual size."""
  if bench.options.data_dir:
    return Path(bench.options.data_dir)
  root, rng = bench.folder, np.random.default_rng(0)
  for i in range(48 if bench.options.quick else bench.options.images):
    wnid = imagenet.all_wnids()[i % 2]
    for split in ("train", "val") if i < 4 else ("train",):
      place = root / "source" / split / wnid
      place.mkdir(parents=True, exist_ok=True)
      (place / f"{wnid}_{i}.JPEG").write_bytes(_photograph(rng))
  prepare_imagenet(imagenet.imagenet(), root / "source", root, reduced=True)
  return root


def _reading(bench: Benchmark) -> tuple[Shards, np.ndarray, images.Draws]:
  """Stored photographs, rows of some of them, and the views of these."""
  index = read_index(_prepared(bench) / "imagenet")
  shards = Shards(index.directory, index.files, size=224)
  rows = np.random.default_rng(1).permutation(index.rows["train"])
  rows = rows[: bench.options.images]
  return shards, rows, images.Draws(0, 0, np.arange(len(rows)))


def _photograph(rng, size=(500, 375)) -> bytes:
  """Large shapes and some grain: about as many bytes as a real one."""
  coarse = Image.fromarray(rng.integers(0, 256, (6, 8, 3), np.uint8))
  pixels = np.asarray(coarse.resize(size, Image.Resampling.BICUBIC))
  grain = rng.normal(0, 12, (size[1], size[0], 1))
  file = io.BytesIO()
  Image.fromarray((pixels + grain).clip(0, 255).astype(np.uint8)).save(
    file, "JPEG", quality=90
  )
  return file.getvalue()


def core(bench: Benchmark) -> None:
  """Each part of the way on one core, and how many such cores a machine needs."""
  shards, rows, draws = _reading(bench)
  files = [shards.encoded(row) for row in rows]
  decoders = [name for name in views.DECODERS if _installed(name)]
  work: dict[str, Callable[[], Any]] = {
    "read": lambda: [shards.encoded(row) for row in rows]
  }
  for name in decoders:
    work[f"decode, crop, resize ({name})"] = functools.partial(
      _views, files, draws, shards.size, name
    )
  for name in decoders:
    other = dataclasses.replace(shards, decoder=name)
    work[f"all of it ({name})"] = functools.partial(other.views, rows, draws)
  work["all of it, for tests (pillow)"] = lambda: shards.views(rows)
  found = {
    name: len(rows) / min(_cpu_seconds(run) for _ in range(bench.rounds))
    for name, run in work.items()
  }
  kilobytes = np.mean([len(file) for file in files]) / 1e3
  bench.add(
    "core",
    f"One core, files of {kilobytes:.0f} kB on average, to 224×224",
    [{"part": p, "images_per_second": rate} for p, rate in found.items()],
    {"part": ("", "{}"), **_RATE},
    images=len(rows),
    made=bench.options.data_dir is None,
  )
  _machines(bench, found["all of it (pillow)"])


_RATE = {"images_per_second": ("images/s", "{:,.0f}")}


def _cpu_seconds(work: Callable[[], Any]) -> float:
  began = time.process_time()
  work()
  return time.process_time() - began


def _views(files, draws, size, decoder):
  for i, encoded in enumerate(files):
    views.training_view(encoded, size, draws.generator(i), decoder)


def _installed(decoder: str) -> bool:
  module = {"pillow": "PIL"}.get(decoder, decoder)
  return importlib.util.find_spec(module) is not None


def _machines(bench: Benchmark, per_core: float) -> None:
  """How many such cores would keep an accelerator busy."""
  rows = []
  for name, peak in _PEAK_FLOPS.items():
    for share in _UTILISATIONS:
      rate = share * peak / _FLOP_PER_IMAGE
      row = {"machine": name, "utilisation": share, "images_per_second": rate}
      rows.append(row | {"cores": math.ceil(rate / per_core)})
  bench.add(
    "machines",
    "ResNet-18 at 224×224, if an accelerator reaches a share of its peak (an"
    " assumption)",
    rows,
    {
      "machine": ("", "{}"),
      "utilisation": ("share", "{:.0%}"),
      **_RATE,
      "cores": ("cores", "{}"),
    },
    images_per_second_and_core=per_core,
  )


def workers(bench: Benchmark) -> None:
  """Processes that read and decode, on the clock and in CPU seconds."""
  shards, rows, draws = _reading(bench)
  found = []
  for count in sorted({1, 2, machine()["cores"]}):
    pool = Pool(shards, count)
    began = time.perf_counter()
    pool.views(rows[:count])
    start = time.perf_counter() - began
    turns = []
    for _ in range(bench.rounds):
      began, cpu = time.perf_counter(), _cpu_of_all()
      pool.views(rows, draws)
      here, there = _cpu_of_all()
      turns.append((time.perf_counter() - began, here - cpu[0], there - cpu[1]))
    clock, own, others = map(min, zip(*turns, strict=True))
    found.append(
      {
        "workers": count,
        "images_per_second": len(rows) / clock,
        "workers_microseconds": 1e6 * others / len(rows),
        "own_microseconds": 1e6 * own / len(rows),
        "start_seconds": start,
      }
    )
  bench.add(
    "workers",
    "Worker processes (a busy machine has fewer images/s to give)",
    found,
    {
      "workers": ("workers", "{}"),
      **_RATE,
      "workers_microseconds": ("CPU of workers", "{:,.0f} µs/image"),
      "own_microseconds": ("of the one that learns", "{:.0f} µs/image"),
      "start_seconds": ("until the first image", "{:.1f} s"),
    },
    images=len(rows),
  )


def _cpu_of_all() -> tuple[float, float]:
  """CPU seconds of this process, and of those that it has started."""
  others = [child.cpu_times() for child in psutil.Process().children(True)]
  return time.process_time(), sum(t.user + t.system for t in others)


class _Timed:
  """A feed that knows when blocks were asked for, and when they were there."""

  def __init__(self, feed: phase.Feed):
    self._feed = feed
    self.draws = feed.draws
    self.times: list[tuple[float, float]] = []

  def blocks(
    self,
    key: jax.Array,
    schedule: phase.Schedule,
    epoch: int = 0,
    step: int = 0,
  ) -> Generator[tuple[phase.Block, int], None, None]:
    blocks = self._feed.blocks(key, schedule, epoch, step)
    with contextlib.closing(blocks):
      while True:
        asked = time.perf_counter()
        try:
          block = next(blocks)
        except StopIteration:
          return
        self.times.append((asked, time.perf_counter()))
        yield block


def waiting(bench: Benchmark) -> None:
  """ResNet-18 on images that workers decode, as a phase trains it."""
  quick = bench.options.quick
  size, batch, network = (32, 16, "resnet8") if quick else (64, 64, "resnet18")
  found = []
  for count in sorted({1, machine()["cores"]}):
    root = _prepared(bench)
    loaded = data.load("imagenet", root, image_size=size, workers=count)
    waited, total, steps = _train(loaded, network, batch)
    found.append(
      {
        "workers": count,
        "waited": waited / total,
        "step_seconds": total / steps,
        "images_per_second": steps * batch / total,
      }
    )
  bench.add(
    "waiting",
    f"Training {network} at {size}×{size}, batches of {batch}",
    found,
    {
      "workers": ("workers", "{}"),
      "waited": ("waited", "{:.1%}"),
      "step_seconds": ("step", "{:.2f} s"),
      **_RATE,
    },
    image_size=size,
    batch_size=batch,
  )


def _train(loaded, network, batch, epochs=8, skipped=3):
  """Seconds waited, seconds, and steps, without the first epochs."""
  method, classes = jax_train.METHOD, len(loaded.class_names)
  make = networks.NETWORKS[network]
  model = Model(make(image_shape=loaded.image_shape), method.head, classes)
  new = jnp.ones(classes, bool)
  schedule = phase.Schedule(
    epochs=epochs, learning_rate=0.01, milestones=(), batch_size=batch
  )
  task = phase.Task(
    jax_train.Classes(~new, new),
    new,
    None,
    model=model,
    method=method,
    schedule=schedule,
    augment=NoAugmentation(),
  )
  count = len(loaded.train_labels)
  feed = phase.Streamed(loaded.train_images, loaded.train_labels, count)
  timed = _Timed(feed)
  phase.fit(jax.random.key(1), model.init(jax.random.key(0)), timed, task)
  ended = time.perf_counter()
  # The first blocks are read while programs compile.
  first = skipped * len(timed.times) // epochs
  waited = sum(there - asked for asked, there in timed.times[first:])
  steps = (epochs - skipped) * schedule.steps(count)
  return waited, ended - timed.times[first][0], steps


BENCHMARK = Benchmark(
  "input",
  dict(core=core, workers=workers, waiting=waiting),
  rounds=(5, "Measurements; the fastest counts."),
  images=(384, "Photographs of a measurement."),
  data_dir=(str, "A prepared ImageNet; by default photographs are made."),
)

if __name__ == "__main__":
  BENCHMARK.run()
