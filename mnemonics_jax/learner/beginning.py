"""What a learner begins with: a network of its own, or a published model."""

from collections.abc import Callable, Iterable
from typing import Any

from mnemonics_jax.phase import Phase, Stage, train_model
from mnemonics_jax.types import Variables


def training(
  base_model: str | None, names: Iterable[Any]
) -> Callable[[Phase, Stage], Variables]:
  """How the first classes are trained: a model of them may be there already.

  Args:
    base_model: where it is, None to train one.
    names: of the first classes, in the order in which they are learned.
  """
  if base_model is None:
    return train_model
  from mnemonics_jax.runs import published

  return published.begin_with(published.load(base_model), names)


def network(base_model: str) -> Any:
  """The network of a published model."""
  from mnemonics_jax.runs import published

  return published.network(base_model)
