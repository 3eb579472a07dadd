"""Interruption without files: a journal that lets nothing go on for long."""

from collections.abc import Callable
from typing import Any, TypeVar

import jax

from mnemonics_jax.phase import Journal
from mnemonics_jax.types import PyTree

T = TypeVar("T")


class Interrupted(Exception):
  """The journal has taken note, and ends what was running."""


class Impatient(Journal):
  """Takes note of all that it is told, and interrupts each time.

  Attributes:
    results: what `finish` was given, by entry.
    running: the entry that was offered last, and its state.
    offers: every entry that was offered, in order.
  """

  def __init__(self):
    self.results: dict[str, PyTree] = {}
    self.running: tuple[str | None, PyTree] = None, None
    self.offers: list[str] = []

  def finished(self, entry: str) -> PyTree | None:
    return _copy(self.results[entry]) if entry in self.results else None

  def finish(self, entry: str, value: PyTree) -> PyTree:
    self.results[entry] = _copy(value)
    self.running = None, None
    raise Interrupted

  def started(self, entry: str) -> bool:
    return self.running[0] == entry

  def resume(self, entry: str, like: PyTree) -> PyTree | None:
    if not self.started(entry):
      return None
    state = _copy(self.running[1])
    assert jax.tree.structure(state) == jax.tree.structure(like)
    return state

  def offer(self, entry: str, state: PyTree) -> None:
    self.running = entry, _copy(state)
    self.offers.append(entry)
    raise Interrupted


def in_pieces(program: Callable[[Impatient], T]) -> tuple[T, Impatient]:
  """Runs a program again and again until nothing interrupts it any more.

  It continues from every moment at which it can be interrupted, one by one.
  """
  journal = Impatient()
  for _ in range(500):
    try:
      return program(journal), journal
    except Interrupted:
      pass
  raise AssertionError("It never ends.")


def _copy(tree: PyTree) -> Any:
  """A tree whose arrays nobody else can change or donate."""
  return jax.tree.map(lambda x: x.copy() if hasattr(x, "copy") else x, tree)
