"""A stage of a phase: whom it tells where it is, and where it may continue.

Progress goes one way, through a `Report`. Interruption has one channel, too, the
`Journal`: a stage asks it what is known already and offers it where it is.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mnemonics_jax.progress import Report, StepReport, ignore
from mnemonics_jax.types import PyTree


class Journal:
  """What a phase remembers of its own progress; this one keeps nothing.

  One that writes to a disk lets a phase continue where it was, and may end it by
  raising an exception from `offer` or `once`.

  >>> class Kept(dict, Journal):
  ...   def once(self, entry, compute):
  ...     return self[entry] if entry in self else self.setdefault(entry, compute())
  >>> journal = Kept()
  >>> journal.once("train", lambda: "Θ"), journal.once("train", lambda: "again")
  ('Θ', 'Θ')
  """

  def once(self, entry: str, compute: Callable[[], PyTree]) -> PyTree:
    """What `compute` returns for this entry, nested dicts of arrays."""
    return compute()

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

  >>> heard = []
  >>> Stage(phase=2, name="adjust", report=heard.append).tell(epoch=0, epochs=5)
  >>> heard[0].stage, heard[0].epoch, heard[0].epochs
  ('adjust', 0, 5)

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

  def once(self, compute: Callable[[], PyTree]) -> PyTree:
    return self.journal.once(self.entry, compute)

  def resume(self, like: PyTree) -> PyTree:
    """What was offered last, or `like` itself."""
    found = self.journal.resume(self.entry, like)
    return like if found is None else found

  def offer(self, state: PyTree) -> None:
    self.journal.offer(self.entry, state)
