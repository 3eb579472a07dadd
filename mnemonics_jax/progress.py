"""Events that report progress, and the function that hears them.

A `Report` is any function of an `Event`: the console, a log, a test. `ignore` drops
all events. Nothing here needs JAX.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple


class RunBegins(NamedTuple):
  """A run is about to train; comes once, before everything else.

  Attributes:
    phases: number of phases, the base phase included.
    seeds: those that are still to be trained.
    work: expected work of each phase for one seed, in training steps of phase 0.
  """

  phases: int
  seeds: tuple[int, ...]
  work: tuple[float, ...]


class SeedBegins(NamedTuple):
  """One of the seeds begins, or goes on.

  Attributes:
    seed: its number.
  """

  seed: int


class StepReport(NamedTuple):
  """Where a run is.

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


class PhaseEnds(NamedTuple):
  """A phase is over, and has been tested.

  Attributes:
    phase: index of the phase.
    classes_seen: the test covers so many classes.
    accuracy: of each read-out.
  """

  phase: int
  classes_seen: int
  accuracy: Mapping[str, float]


class Note(NamedTuple):
  """Something a person should know.

  Attributes:
    text: one or more sentences.
  """

  text: str


class DataReport(NamedTuple):
  """How far a data set has been read, fetched or written.

  Attributes:
    done: images, or bytes.
    total: of the same.
  """

  done: int
  total: int


Event = RunBegins | SeedBegins | StepReport | PhaseEnds | Note | DataReport
Report = Callable[[Event], None]


def ignore(event: Event) -> None:
  """The `Report` that drops all events."""
  del event
