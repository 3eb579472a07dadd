"""seed_K/phase_NN.npz: what a report draws of a phase.

The arrays and their names are listed in `layout.PHASE_ARRAYS`.
"""

from collections.abc import Mapping
from typing import Any
import zipfile
import zlib

import numpy as np
from numpy.lib.npyio import NpzFile

from mnemonics_jax import files
from mnemonics_jax.runs import layout
from mnemonics_jax.runs.layout import AnyPath

# How much of a phase is kept for pictures.
_SHOWN_CLASSES, _SHOWN_PER_CLASS = 10, 2
# Of every class: which ones a map should show is known at the end only.
_TEST_FEATURES, _EXEMPLAR_FEATURES = 30, 10
_MEMORY = 2**24  # Bytes of exemplars, of each class at least one.


def write_phase_arrays(
  workdir: AnyPath,
  seed: int,
  phase: int,
  *,
  seen: int,
  memory: tuple[np.ndarray, np.ndarray],
  confusion: Mapping[str, Mapping[str, np.ndarray]],
  changed: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
  test_features: tuple[np.ndarray, np.ndarray],
  exemplar_features: tuple[np.ndarray, np.ndarray],
) -> None:
  """Writes what a report draws of a phase.

  Args:
    workdir: of the run.
    seed: which one.
    phase: which one.
    seen: number of classes learned so far.
    memory: exemplars, uint8 [n, h, w, c], and their labels. The first of each
      class are kept as `memory/images`, how many there are as `memory/counts`.
    confusion: counts [seen, seen] (true class, predicted class) by moment and
      read-out; kept as `confusion/MOMENT/READOUT`.
    changed: by stage the images before it and after it, and their labels. Two
      each of up to ten classes are kept as `changed/STAGE/before`, `after` and
      `labels`.
    test_features: of the test images [n, d], with their labels. Those of the
      first 30 of each class are kept in half precision as `features/test` and
      `features/test_labels`.
    exemplar_features: of the memory; of the first 10 of each class kept as
      `features/exemplars`, `..._labels`.
  """
  arrays: dict[str, Any] = {
    "memory/images": _grid(*memory, seen),
    "memory/counts": np.bincount(memory[1], minlength=seen),
  }
  for moment, by_readout in confusion.items():
    for name, counts in by_readout.items():
      arrays[f"confusion/{moment}/{name}"] = counts
  for stage, (before, after, labels) in changed.items():
    rows = _first_of_each(labels, _SHOWN_PER_CLASS, _SHOWN_CLASSES)
    for name, values in [
      ("before", before), ("after", after), ("labels", labels)
    ]:  # fmt: skip
      arrays[f"changed/{stage}/{name}"] = values[rows]
  for name, (features, labels), each in [
    ("test", test_features, _TEST_FEATURES),
    ("exemplars", exemplar_features, _EXEMPLAR_FEATURES),
  ]:
    rows = _first_of_each(labels, each)
    arrays[f"features/{name}"] = features[rows].astype(np.float16)
    arrays[f"features/{name}_labels"] = labels[rows]
  path = layout.phase_arrays_path(workdir, seed, phase)
  path.parent.mkdir(parents=True, exist_ok=True)
  with files.replacing(path) as file:
    np.savez_compressed(file, **arrays)


def _grid(images: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
  """The first images of each class, [classes, slots, h, w, c], and zeros."""
  most = np.bincount(labels, minlength=classes).max()
  slots = min(most, max(_MEMORY // (classes * images[:1].size or 1), 1))
  grid = np.zeros((classes, slots, *images.shape[1:]), np.uint8)
  for label in range(classes):
    first = images[labels == label][:slots]
    grid[label, : len(first)] = first
  return grid


def _first_of_each(
  labels: np.ndarray, count: int, classes: int | None = None
) -> np.ndarray:
  """Where the first `count` are of each of the first `classes`, or of all."""
  found = [
    np.flatnonzero(labels == label)[:count]
    for label in np.unique(labels)[:classes]
  ]
  return np.concatenate([np.zeros(0, int), *found])


def read_phase_arrays(
  workdir: AnyPath, seed: int, phase: int, prefix: str = ""
) -> dict[str, np.ndarray]:
  """What a phase saved under names with a prefix; empty when nothing.

  Raises:
    WorkdirError: the file is damaged. Nothing in it is ever executed.
  """
  path = layout.phase_arrays_path(workdir, seed, phase)
  if not path.exists():
    return {}
  try:
    raw = path.open("rb")
  except OSError as error:
    raise layout.unreadable(path, error) from error
  try:
    # Not np.load, which takes files of other kinds for what they are.
    with raw, NpzFile(raw, allow_pickle=False) as file:
      arrays = {
        name: file[name] for name in file.files if name.startswith(prefix)
      }
  except (
    OSError,  # A seek to where no file reaches.
    ValueError,
    EOFError,
    RuntimeError,  # Encrypted, or compressed in another way.
    zipfile.BadZipFile,
    zlib.error,
  ) as error:
    raise layout.damaged(path, error) from error
  for name, array in arrays.items():
    if not isinstance(array, np.ndarray):
      raise layout.damaged(path, f"{name} is not an array")
  return arrays
