"""seed_K/phase_NN.npz: what a report draws of a phase.

The arrays and their names are listed in `layout.PHASE_ARRAYS`.
"""

from collections.abc import Mapping, Sequence
from typing import Any
import zipfile
import zlib

import numpy as np
from numpy.lib.npyio import NpzFile

from mnemonics_jax.runs import files, layout
from mnemonics_jax.runs.layout import AnyPath

# How much of a phase is kept for pictures.
_SHOWN_CLASSES, _SHOWN_PER_CLASS = 10, 2
_MAPPED = 7
_OTHERS = 150  # Other classes of which the mean is kept.


def mapped_classes(classes_per_phase: Sequence[int]) -> list[int]:
  """Classes whose features are kept: three of phase 0, then four newcomers.

  Example:
    >>> mapped_classes([5, 1, 3])
    [0, 1, 2, 5, 6, 7]
  """
  start = classes_per_phase[0]
  mapped = list(range(min(start, 3)))
  for size in classes_per_phase[1:]:
    missing = _MAPPED - len(mapped)
    mapped += range(start, start + min(size, 2, missing))
    start += size
  return mapped


def write_phase_arrays(
  workdir: AnyPath,
  seed: int,
  phase: int,
  *,
  seen: int,
  memory_images: np.ndarray,
  memory_counts: np.ndarray,
  confusion: Mapping[str, Mapping[str, np.ndarray]],
  changed: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]],
  test_features: tuple[np.ndarray, np.ndarray],
  exemplar_features: tuple[np.ndarray, np.ndarray],
  mapped: Sequence[int],
) -> None:
  """Writes what a report draws of a phase.

  Args:
    workdir: of the run.
    seed: which one.
    phase: which one.
    seen: number of classes learned so far.
    memory_images: uint8 [classes, slots, h, w, c], zero past the counts. Kept
      as `memory/images`, of the classes seen.
    memory_counts: filled slots [classes]; kept as `memory/counts`.
    confusion: counts [seen, seen] (true class, predicted class) by moment and
      read-out; kept as `confusion/MOMENT/READOUT`.
    changed: by stage the images before it and after it, and their labels. Two
      each of up to ten classes are kept as `changed/STAGE/before`, `after` and
      `labels`.
    test_features: of the test images [n, d], with their labels. Those of
      `mapped` are kept in half precision as `features/test` and
      `features/test_labels`.
    exemplar_features: of the memory; `features/exemplars`, `..._labels`.
    mapped: classes whose features are kept; see `mapped_classes`. Of others the
      mean direction of test images is, as `features/others`, `..._labels`.
  """
  arrays: dict[str, Any] = {
    "memory/images": memory_images[:seen],
    "memory/counts": memory_counts[:seen],
  }
  for moment, by_readout in confusion.items():
    for name, counts in by_readout.items():
      arrays[f"confusion/{moment}/{name}"] = counts
  for stage, (before, after, labels) in changed.items():
    rows = [
      row
      for label in np.unique(labels)[:_SHOWN_CLASSES]
      for row in np.flatnonzero(labels == label)[:_SHOWN_PER_CLASS]
    ]
    for name, values in [
      ("before", before), ("after", after), ("labels", labels)
    ]:  # fmt: skip
      arrays[f"changed/{stage}/{name}"] = values[rows]
  for name, (features, labels) in [
    ("test", test_features),
    ("exemplars", exemplar_features),
  ]:
    rows = np.isin(labels, mapped)
    arrays[f"features/{name}"] = features[rows].astype(np.float16)
    arrays[f"features/{name}_labels"] = labels[rows]
  means, labels = _other_classes(*test_features, mapped)
  arrays["features/others"] = means.astype(np.float16)
  arrays["features/others_labels"] = labels
  path = layout.phase_arrays_path(workdir, seed, phase)
  path.parent.mkdir(parents=True, exist_ok=True)
  with files.replacing(path) as file:
    np.savez_compressed(file, **arrays)


def _other_classes(
  features: np.ndarray, labels: np.ndarray, mapped: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
  """The mean direction of each class that is not mapped, and these classes."""
  classes = np.setdiff1d(labels, mapped)
  evenly = np.linspace(0, len(classes) - 1, min(len(classes), _OTHERS))
  classes = classes[evenly.round().astype(int)]
  lengths = np.linalg.norm(features, axis=1, keepdims=True)
  unit = features / np.maximum(lengths, 1e-12)
  means = [unit[labels == label].mean(axis=0) for label in classes]
  return np.reshape(means, (len(classes), features.shape[1])), classes


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
