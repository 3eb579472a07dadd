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

from collections.abc import Iterator, Sequence
import io
from pathlib import Path
import struct
import time
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from benchmarks.measure import Benchmark, Command, mebibytes
from mnemonics_jax import data
from mnemonics_jax.data import folder

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


def streaming(bench: Benchmark) -> None:
  """Runs of ever more images, each in a process of its own."""
  size = _SMALL if bench.options.quick else _FULL
  if asked := bench.options.images:
    size = size._replace(images=[int(count) for count in asked])
  bench.add(
    "streaming",
    f"{size.classes} classes at {size.image_size}×{size.image_size}",
    list(_runs(size, bench.folder)),
    {
      "images": ("images", "{:,}"),
      "epochs": ("epochs", "{}"),
      "list_seconds": ("listing", "{:.1f} s"),
      "second_look_seconds": ("second look", "{:.1f} s"),
      "seconds": ("run", "{:.0f} s"),
      "peak_bytes": ("peak memory", mebibytes),
      "bytes_per_image": ("more, per image", "{:,.0f} bytes"),
    },
    commands=[_command(size, n, "DIR", "DIR") for n in size.images],
  )


def _runs(size: _Size, home: Path) -> Iterator[dict[str, Any]]:
  pictures = _pictures(size.classes)
  images, written, first = home / "images", 0, None
  _write(images / "val", pictures, range(_TESTS))
  for count in size.images:
    each = count // size.classes
    _write(images / "train", pictures, range(written, each))
    written = each
    # Nothing is known of a run's images and programs before it.
    place = home / str(count)
    command = _command(size, count, images, place)
    told = Command(*command, XDG_CACHE_HOME=f"{place}/cache").end()
    row = {name: told[name] for name in ("seconds", "peak_bytes")}
    row = {"images": count, "epochs": size.epochs(count), **row}
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


BENCHMARK = Benchmark(
  "streaming",
  dict(streaming=streaming),
  images=(list, "How many to train on, such as 10000,100000; ascending."),
)

if __name__ == "__main__":
  BENCHMARK.run()
