"""What a phase remembers of its own progress.

A phase has long stages. Before each it asks its journal what is known already,
and while one runs it offers where it is. The journal here keeps nothing, so a
phase starts at its beginning; one that writes to a disk lets the phase continue
where it was, and may end it by raising an exception from `offer` or `once`.
"""

from collections.abc import Callable

from mnemonics_jax.types import PyTree


class Journal:
  """A journal that keeps nothing."""

  def once(self, stage: str, compute: Callable[[], PyTree]) -> PyTree:
    """What `compute` returns for this stage, nested dicts of arrays."""
    return compute()

  def resume(self, stage: str, like: PyTree) -> PyTree | None:
    """What was last offered in this stage, in the structure of `like`."""
    return None

  def started(self, stage: str) -> bool:
    """Whether `resume` has something for this stage."""
    return False

  def offer(self, stage: str, state: PyTree) -> None:
    """Takes note of `state`, from which the stage can continue."""
