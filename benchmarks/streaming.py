"""Whether the memory of a run grows with the number of its images.

  python -m benchmarks.streaming            # 10,000 to 100,000, a quarter of an hour
  python -m benchmarks.streaming --quick    # some hundred images, a minute

A folder of 200 classes is learned while it streams, then again with three and ten
times as many images; each run is a process of its own. The images are tiny: 32×32
pixels, a few pictures of each class, which differ from file to file in a comment
alone. A run sees them at 48×48, and few of them for some epochs: some blocks of
images are always in memory, and the smaller folder has to fill as many.

A command keeps the memory that it frees (`experiments/launch.py`), and how much
that is depends on chance. With MALLOC_TRIM_THRESHOLD_=131072 in the environment it
does not, and peaks are what is needed.
"""

from collections.abc import Sequence
import io
import json
import os
import pathlib
import runpy
import struct
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

from absl import app, flags
import numpy as np
from PIL import Image

from benchmarks import measure
from mnemonics_jax import data
from mnemonics_jax.data import folder

_QUICK = flags.DEFINE_bool("quick", False, "Few images of few classes.")
_OUTPUT = flags.DEFINE_string(
  "output", None, "JSON file; the default is below benchmarks/results."
)
_IMAGES = flags.DEFINE_list(
  "images", None, "How many to train on, such as 10000,100000; ascending."
)

_ROOT = pathlib.Path(__file__).parents[1]
_PICTURES = 4  # Of each class.
_TESTS = 5  # The same number for every run.


class _Size(NamedTuple):
  """How much is learned."""

  classes: int
  base_classes: int
  image_size: int
  draws: int  # Of phase 0, at least, all epochs together.
  images: Sequence[int]

  def epochs(self, images: int) -> int:
    """Of phase 0; the later one has one."""
    return -(-self.draws // (images * self.base_classes // self.classes))


_FULL = _Size(200, 190, 48, 30_000, (10_000, 30_000, 100_000))
_SMALL = _Size(10, 8, 16, 600, (200, 800))


def main(_):
  results = measure.Results("streaming", _OUTPUT.value, _QUICK.value)
  size = _SMALL if _QUICK.value else _FULL
  if _IMAGES.value:
    size = size._replace(images=[int(count) for count in _IMAGES.value])
  with tempfile.TemporaryDirectory() as folder:
    rows = list(_runs(size, pathlib.Path(folder)))
  results.add(
    "streaming",
    f"{size.classes} classes at {size.image_size}×{size.image_size}",
    rows,
    lambda row: {
      "images": f"{row['images']:,}",
      "epochs": row["epochs"],
      "listing": f"{row['list_seconds']:.1f} s",
      "second look": f"{row['second_look_seconds']:.1f} s",
      "run": f"{row['seconds']:.0f} s",
      "peak memory": f"{row['peak_bytes'] / 2**20:,.0f} MiB",
      "more, per image": f"{row['bytes_per_image']:,.0f} bytes",
    },
    commands=[_command(size, n, "DIR", "DIR") for n in size.images],
  )


def _runs(size: _Size, home: pathlib.Path):
  pictures = _pictures(size.classes)
  images, written, first = home / "images", 0, None
  _write(images / "val", pictures, range(_TESTS))
  for count in size.images:
    each = count // size.classes
    _write(images / "train", pictures, range(written, each))
    written = each
    # Nothing is known of a run's images and programs before it.
    place = home / str(count)
    row = {"images": count, "epochs": size.epochs(count)} | _learn(
      _command(size, count, images, place), place
    )
    row |= _looks(images, size.image_size, place)
    first = first or row
    grown = row["peak_bytes"] - first["peak_bytes"]
    more = count - first["images"]
    yield row | {"bytes_per_image": grown / more if more else 0.0}


def _pictures(classes: int) -> list[list[bytes]]:
  """Of each class some JPEG files: its colour, and grain."""
  rng = np.random.default_rng(0)
  found = []
  for _ in range(classes):
    color = rng.integers(0, 256, 3)
    found.append([])
    for _ in range(_PICTURES):
      grain = rng.integers(-40, 41, (32, 32, 3))
      file = io.BytesIO()
      pixels = (color + grain).clip(0, 255).astype(np.uint8)
      Image.fromarray(pixels).save(file, "JPEG")
      found[-1].append(file.getvalue())
  return found


def _write(folder, pictures, numbers):
  for label, files in enumerate(pictures):
    place = folder / f"class_{label:03d}"
    place.mkdir(parents=True, exist_ok=True)
    for number in numbers:
      said = b"%d %d" % (label, number)
      comment = b"\xff\xfe" + struct.pack(">H", 2 + len(said)) + said
      file = files[number % _PICTURES]
      path = place / f"image_{number:06d}.jpg"
      path.write_bytes(file[:2] + comment + file[2:])


def _command(size, count, images, place) -> list[str]:
  return [
    *("folder", f"--data={images}", f"--workdir={place}/run"),
    *("--stream=always", "--preset=smoke", f"--image_size={size.image_size}"),
    *("--method=icarl", "--exemplars=herding", "--finetune=none"),
    *(f"--base_classes={size.base_classes}", "--phases=1"),
    *(f"--base_epochs={size.epochs(count)}", "--epochs=1"),
    *("--memory=per_class:5", "--batch_size=128", "--notensorboard"),
  ]


def _learn(command, place) -> dict[str, Any]:
  """Seconds and the most memory of a run in a process of its own."""
  began = time.perf_counter()
  done = subprocess.run(
    [sys.executable, "-m", "benchmarks.streaming", *command],
    cwd=_ROOT,
    env=os.environ
    | {
      _CHILD: "1",
      "PYTHONPATH": str(_ROOT),
      "XDG_CACHE_HOME": f"{place}/cache",
    },
    stdout=subprocess.PIPE,
    stderr=subprocess.STDOUT,
    text=True,
  )
  if done.returncode:
    raise RuntimeError(done.stdout)
  seconds = time.perf_counter() - began
  return {"seconds": seconds} | json.loads(done.stdout.splitlines()[-1])


def _looks(images, image_size, place) -> dict[str, float]:
  """Seconds that it takes to list all files, and to know them again."""
  began = time.perf_counter()
  folder.scan(images)
  listed = time.perf_counter()
  data.load(
    "folder",
    images,
    image_size=image_size,
    stream="always",
    cache_dir=place / "cache" / "mnemonics_jax",
  )
  return {
    "list_seconds": listed - began,
    "second_look_seconds": time.perf_counter() - listed,
  }


_CHILD = "MNEMONICS_BENCHMARK_STREAMING"


def _run(line):
  """The command itself, which then tells of its memory."""
  sys.argv = list(line)
  try:
    runpy.run_module(f"experiments.{line[0]}", run_name="__main__")
  except SystemExit as end:
    if end.code:
      raise
  print(json.dumps({"peak_bytes": measure.peak_bytes()}))


if __name__ == "__main__":
  if _CHILD in os.environ:
    _run(sys.argv[1:])
  else:
    app.run(main)
