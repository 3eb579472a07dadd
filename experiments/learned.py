"""RUN on a command line: what a run, a saved learner or an export knows."""

from collections.abc import Sequence
import importlib
import os
from pathlib import Path
import sys
from typing import TYPE_CHECKING, Any

from absl import flags

from mnemonics_jax.errors import UserError

if TYPE_CHECKING:
  from mnemonics_jax import Known, Learner

_SEED = flags.DEFINE_integer(
  "seed", None, "Which of a run's seeds; the default is its first."
)
_PHASE = flags.DEFINE_integer(
  "phase", None, "After which of a run's phases; the default is the last."
)
_NETWORK = flags.DEFINE_string(
  "network",
  None,
  "The network of RUN, if it is one of your own: package.module:name of a linen"
  " module, or of what makes one when it is called. Code is not saved with RUN.",
)


def argument(argv: Sequence[str], usage: str) -> Path:
  """The first argument, a directory."""
  if len(argv) < 2:
    raise UserError("run", "RUN is missing", f"write {usage}")
  path = Path(argv[1]).expanduser()
  if not path.is_dir():
    raise UserError(
      "run",
      f"There is no directory {path}",
      "RUN is the work directory of a run, or one of Learner.save",
    )
  return path


def load(path: Path) -> "tuple[Learner, Known]":
  """What it knows, by the flags."""
  # Imported here so that a mistake in the flags is answered at once.
  from mnemonics_jax import Learner

  return Learner.load(
    path, network=network(), seed=_SEED.value, phase=_PHASE.value
  )


def network() -> Any:
  """What --network names; None if it was not given."""
  given = _NETWORK.value
  if given is None:
    return None
  module, _, name = given.partition(":")
  if not name.isidentifier() or not all(
    part.isidentifier() for part in module.split(".")
  ):
    raise UserError(
      "network",
      f"`network={given}` names nothing",
      "write `network=package.module:name`",
    )
  sys.path.append(os.getcwd())  # Where `python -m` looks, too.
  try:
    found = getattr(importlib.import_module(module), name)
    made = (
      found
      if hasattr(found, "init") and not isinstance(found, type)
      else found()
    )
  except Exception as error:  # It is the user's code.
    raise UserError(
      "network",
      f"`network={given}` cannot be used ({type(error).__name__}: {error})",
      "name a linen module, or what makes one without arguments",
    ) from error
  finally:
    sys.path.remove(os.getcwd())
  if not hasattr(made, "init"):
    raise UserError(
      "network",
      f"`network={given}` is a {type(made).__name__}",
      "name a linen module, or what makes one without arguments",
    )
  return made
