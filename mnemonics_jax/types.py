"""The values that cross module borders: batches, exemplars, phase state, results."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxtyping import Bool, Float, Int
import numpy as np

if TYPE_CHECKING:
  from jaxtyping import Array  # Readers of files need not wait for JAX.

  from mnemonics_jax.memory import Memory

PyTree = Any
Variables = dict[str, PyTree]
"""A model's arrays: `params` (backbone, head), `batch_stats`, perhaps `transfer`."""


class Batch(NamedTuple):
  """Images in [0, 1] with their labels.

  Attributes:
    images: pixel values in [0, 1].
    labels: class indices in the order in which classes are learned.
  """

  images: Float[Array, "n h w c"]
  labels: Int[Array, " n"]


class Exemplars(NamedTuple):
  """Exemplars as image-shaped parameters (E in the paper).

  Attributes:
    images: pixel values in [0, 1]; the part that is optimised.
    labels: class index of each image; never changes.
    mask: which rows are real; the rest is padding. None means all of them.
  """

  images: Float[Array, "n h w c"]
  labels: Int[Array, " n"]
  mask: Bool[Array, " n"] | None = None


class PhaseState(NamedTuple):
  """Everything that crosses from one phase to the next.

  Attributes:
    variables: Θ with its head and batch statistics.
    memory: exemplars of all classes seen so far.
    key: the root key of the run; phases fold their number into it.
    phase: number of phases completed.
    classes_seen: number of classes learned so far.
  """

  variables: Variables
  memory: Memory
  key: Array
  phase: int
  classes_seen: int


class PhaseResult(NamedTuple):
  """What one phase measured.

  Attributes:
    phase: index of the phase, 0 for the base classes.
    classes_seen: number of classes the test covers.
    confusion: for each moment of measurement (`trained`, `final`) and each
      read-out (`head`, `nme`) the counts [true class, predicted class].
    memory_images: exemplars kept after the phase.
    memory_bytes: their size.
    diagnostics: anything a stage wants to report (histories, notes).
    changed: for each stage that learned images: they before and after it, and
      their labels.
    test_features: of the test images, by the final model, with their labels.
    exemplar_features: of the memory, by the final model, with their labels.
  """

  phase: int
  classes_seen: int
  confusion: Mapping[str, Mapping[str, Int[np.ndarray, "seen seen"]]]
  memory_images: int
  memory_bytes: int
  diagnostics: Mapping[str, Any]
  changed: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
  test_features: tuple[np.ndarray, np.ndarray]
  exemplar_features: tuple[np.ndarray, np.ndarray]
