"""What every stage of a phase is given: its place, randomness, and whom to tell."""

from collections.abc import Callable, Mapping
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Bool, Int
import numpy as np

from mnemonics_jax.data.images import Images
from mnemonics_jax.data.stream import PhaseData
from mnemonics_jax.methods import Classes
from mnemonics_jax.phase import draws
from mnemonics_jax.phase.config import Config, OpenShape
from mnemonics_jax.phase.feed import as_kept
from mnemonics_jax.progress import Report, StepReport, ignore
from mnemonics_jax.types import PhaseState, PyTree

_PURPOSES = (
  "train", "holdout", "select", "exemplars", "adjust", "discard", "finetune",
)  # fmt: skip


class Keys:
  """Independent randomness for each purpose within a phase."""

  def __init__(self, root: jax.Array, phase: int):
    self._key = jax.random.fold_in(root, phase)

  def __call__(self, purpose: str) -> jax.Array:
    return jax.random.fold_in(self._key, _PURPOSES.index(purpose))

  def numpy(self, purpose: str) -> np.random.Generator:
    """A NumPy generator for what is decided on the host."""
    return np.random.default_rng(np.asarray(jax.random.key_data(self(purpose))))


@dataclasses.dataclass(frozen=True)
class Phase:
  """Where a phase starts, what it may look at, and what it does.

  Attributes:
    state: what the phases before have left.
    data: of the new classes.
    config: what is done with them.
  """

  state: PhaseState
  data: PhaseData
  config: Config

  @property
  def classes_old(self) -> int:
    """How many classes earlier phases have learned."""
    return self.state.classes_seen

  @property
  def classes_seen(self) -> int:
    """How many classes are known once this phase has ended."""
    return self.state.classes_seen + self.data.new_classes

  @property
  def incremental(self) -> bool:
    """Whether there is something to forget."""
    return self.classes_old > 0 and not self.config.method.joint

  @property
  def adjusts(self) -> bool:
    """Whether there are old exemplars to adjust."""
    return self.config.adjust and self.incremental

  @property
  def finetunes(self) -> bool:
    """Whether the model is tuned on the memory; joint training needs none."""
    return self.config.finetune != "none" and not self.config.method.joint

  @property
  def allowance(self) -> int:
    """Exemplars that every class may keep once this phase has ended."""
    return self.config.memory.allowance(self.classes_seen)

  @property
  def bytes_allowance(self) -> int | None:
    """Bytes that the codes of a class may take then; None for any number."""
    shared = self.config.codec.shared(self.config.shape.image_shape)
    return self.config.memory.bytes_allowance(self.classes_seen, len(shared))

  def most(self, counts: Int[np.ndarray, " classes"]) -> int:
    """Images that a class with so many may keep, if their bytes fit."""
    if self.bytes_allowance is None or not isinstance(
      self.config.shape, OpenShape
    ):
      return self.allowance
    # A learner measures on new images how many fit, and old codes may be smaller.
    return max(self.allowance, int(counts.max()))

  @functools.cached_property
  def new_images(self) -> Images:
    """Images of the new classes, as the model is trained on them."""
    if self.config.code_new and self.incremental:
      return as_kept(self.config.codec, self.data.images)
    return self.data.images

  @functools.cached_property
  def held_out(self) -> Bool[np.ndarray, " n"]:
    """Which of the new images are never trained on, see `draws`."""
    return draws.held_new_images(
      self.keys.numpy("holdout"),
      self.data.labels,
      self.config.method.holdout,
      self.allowance,
    )

  @functools.cached_property
  def classes(self) -> Classes:
    """Masks of old and new classes, and of the classes of each phase."""
    index = np.arange(self.config.model.classes)
    old, seen = index < self.classes_old, index < self.classes_seen
    ends = np.cumsum(self.config.shape.classes_per_phase)
    arrives = np.searchsorted(ends, index, side="right")
    phases = np.arange(self.config.shape.phases)[:, None] == arrives
    return Classes(*map(jnp.asarray, (old, seen & ~old, phases)))

  @functools.cached_property
  def keys(self) -> Keys:
    """Randomness for each purpose within this phase."""
    return Keys(self.state.key, self.state.phase)


class Journal:
  """What a phase remembers of its own progress; this one keeps nothing.

  One that writes to a disk lets a phase continue where it was. It may end the
  phase by raising an exception from `offer` or `finish`.
  """

  def finished(self, entry: str) -> PyTree | None:
    """What `finish` was given for this entry; None if it was not called."""
    return None

  def finish(self, entry: str, value: PyTree) -> PyTree:
    """Remembers and returns a result, nested dicts of arrays."""
    return value

  def once(self, entry: str, compute: Callable[[], PyTree]) -> PyTree:
    """The result of an entry; computed if it is not finished."""
    found = self.finished(entry)
    return self.finish(entry, compute()) if found is None else found

  def resume(self, entry: str, like: PyTree) -> PyTree | None:
    """What was last offered for this entry, in the structure of `like`."""
    return None

  def started(self, entry: str) -> bool:
    """Whether `resume` has something for this entry."""
    return False

  def offer(self, entry: str, state: PyTree) -> None:
    """Takes note of `state`, from which the entry can continue."""


class Stage(NamedTuple):
  """A stage as its loops see it; by default nobody follows it.

  Attributes:
    phase: index of the phase.
    name: `train`, `exemplars`, `adjust`, `finetune` or `evaluate`.
    report: hears of its progress.
    journal: remembers it.
    part: which part of the stage this is, if it has several.
  """

  phase: int = 0
  name: str = "train"
  report: Report = ignore
  journal: Journal = Journal()
  part: str = ""

  @property
  def entry(self) -> str:
    """Its name in the journal."""
    return f"{self.name}_{self.part}" if self.part else self.name

  def tell(
    self,
    epoch: int,
    epochs: int,
    step: int = 1,
    steps: int = 1,
    metrics: Mapping[str, float] | None = None,
  ) -> None:
    """Reports where the stage is; see `StepReport`."""
    place = self.phase, self.name, epoch, epochs, step, steps
    self.report(StepReport(*place, metrics))

  def begin(self) -> "Stage":
    """Reports that the stage begins."""
    self.tell(0, 1, 0, 1)
    return self

  def finished(self) -> PyTree | None:
    """The result of this stage if it is finished, else None."""
    return self.journal.finished(self.entry)

  def finish(self, value: PyTree) -> PyTree:
    """Remembers and returns the result of this stage."""
    return self.journal.finish(self.entry, value)

  def resume(self, like: PyTree) -> PyTree:
    """What was offered last, or `like` itself."""
    found = self.journal.resume(self.entry, like)
    return like if found is None else found

  def offer(self, state: PyTree) -> None:
    self.journal.offer(self.entry, state)
