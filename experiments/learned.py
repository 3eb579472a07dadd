"""RUN on a command line: what a run, a saved learner or an export knows."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

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

  return Learner.load(path, seed=_SEED.value, phase=_PHASE.value)
