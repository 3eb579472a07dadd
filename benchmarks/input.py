"""How fast photographs can be read, and whether training has to wait for them.

  python -m benchmarks.input                    # photographs that it makes, minutes
  python -m benchmarks.input --data_dir=DIR     # a prepared ImageNet
  python -m benchmarks.input --quick            # a minute

Four parts: what one core does in a second, what worker processes do together, how
many cores would keep an accelerator busy, and the share of its time for which a
training loop waits.
"""

from collections.abc import Callable, Generator
import contextlib
import dataclasses
import functools
import importlib.util
import io
import math
import pathlib
import tempfile
import time
from typing import Any

from absl import app, flags
import jax
import jax.numpy as jnp
import numpy as np
from PIL import Image
import psutil

from benchmarks import jax_train, measure
from mnemonics_jax import data, phase
from mnemonics_jax.data import imagenet, images, views
from mnemonics_jax.data.prepare import prepare_imagenet
from mnemonics_jax.data.shards import Shards, read_index
from mnemonics_jax.data.workers import Pool
from mnemonics_jax.nn import networks
from mnemonics_jax.nn.augment import NoAugmentation
from mnemonics_jax.nn.model import Model

_QUICK = flags.DEFINE_bool("quick", False, "Few images and a small network.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_DATA_DIR = flags.DEFINE_string(
  "data_dir", None, "A prepared ImageNet; by default photographs are made."
)
_PARTS = flags.DEFINE_list(
  "parts", ["core", "workers", "waiting"], "What to measure."
)
_IMAGES = flags.DEFINE_integer("images", 384, "Photographs of a measurement.")
_ROUNDS = flags.DEFINE_integer("rounds", 5, "Measurements; the fastest counts.")

# Training ResNet-18 at 224×224 takes 3 passes of 1.82e9 multiply-adds an image.
_FLOP_PER_IMAGE = 3 * 2 * 1.82e9
# bfloat16, as their makers state.
_PEAK_FLOPS = {"A100": 312e12, "TPU v5e-8": 8 * 197e12}
_UTILISATIONS = (0.15, 0.30)  # Assumed: of small convolutions, not of GEMMs.


def main(_):
  results = measure.Results("input", _OUTPUT.value, _QUICK.value)
  with contextlib.ExitStack() as stack:
    root = pathlib.Path(_DATA_DIR.value or stack.enter_context(_made()))
    index = read_index(root / "imagenet")
    shards = Shards(index.directory, index.files, size=224)
    rows = np.random.default_rng(1).permutation(index.rows["train"])
    rows = rows[: _IMAGES.value]
    draws = images.Draws(0, 0, np.arange(len(rows)))
    if "core" in _PARTS.value:
      per_core = _core(results, shards, rows, draws)
      _machines(results, per_core)
    if "workers" in _PARTS.value:
      _workers(results, shards, rows, draws)
    if "waiting" in _PARTS.value:
      _waiting(results, root)


@contextlib.contextmanager
def _made():
  """A prepared directory of photographs of ImageNet's usual size."""
  count = 48 if _QUICK.value else _IMAGES.value
  rng = np.random.default_rng(0)
  with tempfile.TemporaryDirectory() as folder:
    root = pathlib.Path(folder)
    for i in range(count):
      wnid = imagenet.all_wnids()[i % 2]
      for split in ("train", "val") if i < 4 else ("train",):
        place = root / "source" / split / wnid
        place.mkdir(parents=True, exist_ok=True)
        (place / f"{wnid}_{i}.JPEG").write_bytes(_photograph(rng))
    world = imagenet.imagenet()
    prepare_imagenet(world, root / "source", root, reduced=True)
    yield root


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


def _cpu_seconds(work, count) -> float:
  """Of one image; the least of all rounds."""
  found = []
  for _ in range(_rounds()):
    began = time.process_time()
    work()
    found.append((time.process_time() - began) / count)
  return min(found)


def _core(results, shards, rows, draws) -> float:
  """Each part of the way on one core; images in a second of all of it."""
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
  found = {name: 1 / _cpu_seconds(run, len(rows)) for name, run in work.items()}
  results.add(
    "core",
    f"One core, files of {np.mean([len(f) for f in files]) / 1e3:.0f} kB on"
    " average, to 224×224",
    [{"part": p, "images_per_second": rate} for p, rate in found.items()],
    lambda row: {
      "": row["part"], "images/s": f"{row['images_per_second']:,.0f}",
    },
    images=len(rows),
    made=_DATA_DIR.value is None,
  )  # fmt: skip
  return found["all of it (pillow)"]


def _views(files, draws, size, decoder):
  for i, encoded in enumerate(files):
    views.training_view(encoded, size, draws.generator(i), decoder)


def _installed(decoder: str) -> bool:
  module = {"pillow": "PIL"}.get(decoder, decoder)
  return importlib.util.find_spec(module) is not None


def _workers(results, shards, rows, draws):
  """Processes that read and decode, on the clock and in CPU seconds."""
  found = []
  for count in sorted({1, 2, measure.machine()["cores"]}):
    pool = Pool(shards, count)
    began = time.perf_counter()
    pool.views(rows[:count])
    start = time.perf_counter() - began
    clock, own, others = [], [], []
    for _ in range(_rounds()):
      began, cpu = time.perf_counter(), _cpu_of_all()
      pool.views(rows, draws)
      clock.append(time.perf_counter() - began)
      here, there = _cpu_of_all()
      own.append(here - cpu[0])
      others.append(there - cpu[1])
    found.append(
      {
        "workers": count,
        "images_per_second": len(rows) / min(clock),
        "workers_microseconds": 1e6 * min(others) / len(rows),
        "own_microseconds": 1e6 * min(own) / len(rows),
        "start_seconds": start,
      }
    )
  results.add(
    "workers",
    "Worker processes (a busy machine has fewer images/s to give)",
    found,
    lambda row: {
      "workers": row["workers"],
      "images/s": f"{row['images_per_second']:,.0f}",
      "CPU of workers": f"{row['workers_microseconds']:,.0f} µs/image",
      "of the one that learns": f"{row['own_microseconds']:.0f} µs/image",
      "until the first image": f"{row['start_seconds']:.1f} s",
    },
    images=len(rows),
  )


def _rounds() -> int:
  return 1 if _QUICK.value else _ROUNDS.value


def _cpu_of_all() -> tuple[float, float]:
  """CPU seconds of this process, and of those that it has started."""
  others = [child.cpu_times() for child in psutil.Process().children(True)]
  return time.process_time(), sum(t.user + t.system for t in others)


def _machines(results, per_core: float):
  """How many such cores would keep an accelerator busy."""
  found = [
    {
      "machine": name,
      "utilisation": share,
      "images_per_second": share * peak / _FLOP_PER_IMAGE,
      "cores": math.ceil(share * peak / _FLOP_PER_IMAGE / per_core),
    }
    for name, peak in _PEAK_FLOPS.items()
    for share in _UTILISATIONS
  ]
  results.add(
    "machines",
    "ResNet-18 at 224×224, if an accelerator reaches a share of its peak (an"
    " assumption)",
    found,
    lambda row: {
      "": row["machine"],
      "share": f"{row['utilisation']:.0%}",
      "images/s": f"{row['images_per_second']:,.0f}",
      "cores": row["cores"],
    },
    images_per_second_and_core=per_core,
  )


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


def _waiting(results, root):
  """ResNet-18 on images that workers decode, as a phase trains it."""
  size, batch = (32, 16) if _QUICK.value else (64, 64)
  network = "resnet8" if _QUICK.value else "resnet18"
  found = []
  for workers in sorted({1, measure.machine()["cores"]}):
    loaded = data.load("imagenet", root, image_size=size, workers=workers)
    waited, total, steps = _train(loaded, network, batch)
    found.append(
      {
        "workers": workers,
        "waited": waited / total,
        "step_seconds": total / steps,
        "images_per_second": steps * batch / total,
      }
    )
  results.add(
    "waiting",
    f"Training {network} at {size}×{size}, batches of {batch}",
    found,
    lambda row: {
      "workers": row["workers"],
      "waited": f"{row['waited']:.1%}",
      "step": f"{row['step_seconds']:.2f} s",
      "images/s": f"{row['images_per_second']:,.0f}",
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


if __name__ == "__main__":
  app.run(main)
