"""The values that cross module borders: batches, exemplars, phase state, results."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxtyping import Array, Bool, Float, Int, UInt8
import numpy as np

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


class Memory(NamedTuple):
  """What a learner may keep of old classes: a fixed grid of image slots.

  Attributes:
    images: uint8 pixels; slots past `counts` are zero.
    counts: how many slots of each class are filled.
  """

  images: UInt8[np.ndarray, "classes slots h w c"]
  counts: Int[np.ndarray, " classes"]


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


class StepReport(NamedTuple):
  """Where a run is; handed to the caller's `report` function as it goes.

  Attributes:
    phase: index of the phase.
    stage: `train`, `exemplars`, `adjust`, `finetune` or `evaluate`.
    epoch: index of the running epoch of that stage.
    epochs: number of epochs the stage has.
    step: steps of this epoch done so far.
    steps: steps this epoch has.
    metrics: means over the epoch; given once, when the epoch is complete.
  """

  phase: int
  stage: str
  epoch: int
  epochs: int
  step: int
  steps: int
  metrics: Mapping[str, float] | None = None


Report = Callable[[StepReport], None]
