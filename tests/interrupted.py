"""Runs of a tiny data set that can be interrupted, and what must come of them."""

from collections.abc import Callable
import contextlib
import dataclasses
import itertools
from pathlib import Path
from unittest import mock

import numpy as np
import tiny

from experiments import run as run_lib
from experiments import settings as settings_lib
from experiments.saving import Policy
from experiments.settings import Settings
from experiments.stopping import Stop, Stopped
from mnemonics_jax import checkpoint
from mnemonics_jax.bilevel import BilevelConfig

SETTINGS = Settings(
  dataset="tiny",
  preset="smoke",
  net="resnet8",
  phases=2,
  base_classes=2,
  epochs=2,
  base_epochs=2,
  batch_size=16,
  learning_rate=0.05,
  memory="per_class:3",
  adjust=True,
  finetune="all",
  finetune_epochs=2,
  augment="crop",
)
ALWAYS, NEVER = Policy(every=0.0), Policy(every=1e9)
RECIPE = BilevelConfig(epochs=2, steps_per_epoch=2, inner_steps=2)


def run(
  workdir: Path,
  saving: Policy = ALWAYS,
  recipe: BilevelConfig = RECIPE,
  base_models: Path | None = None,
  tensorboard: bool = False,
  **changes,
) -> None:
  """Runs the tiny data set to its end, or to an exception."""
  with mock.patch.object(settings_lib, "_bilevel", lambda _: recipe):
    run_lib.run(
      dataclasses.replace(SETTINGS, **changes),
      tiny.dataset(classes=4),
      workdir,
      tensorboard=tensorboard,
      base_models=base_models,
      saving=saving,
    )


class _StopWhen(Stop):
  """Asks to stop at the first opportunity at which a condition holds."""

  def __init__(self, condition):
    super().__init__()
    self._condition = condition

  def obey(self):
    if self._condition():
      raise Stopped(143)


def run_until(
  workdir: Path, when: int | Callable[[], object], **changes
) -> bool:
  """Runs until its nth checkpoint, or until one after which `when` is true.

  Returns:
    Whether the run has ended before.
  """
  saves = itertools.count(1)
  condition = when if callable(when) else lambda: next(saves) == when
  stop = mock.patch.object(run_lib, "Stop", lambda _: _StopWhen(condition))
  with stop, contextlib.suppress(Stopped):
    run(workdir, **changes)
    return True
  return False


def files(workdir: Path) -> dict[str, object]:
  """What a run leaves that must not depend on interruptions."""
  kept = {"results": (workdir / "results.json").read_bytes()}
  for path in sorted(workdir.glob("seed_*/*.npz")):
    kept[f"{path.parent.name}/{path.name}"] = path.read_bytes()
  for path in sorted(workdir.glob("seed_*/checkpoints/phase_??")):
    tree, _ = checkpoint.restore(path)
    kept[f"{path.parent.parent.name}/{path.name}"] = leaves(tree)
  return kept


def leaves(tree, name="") -> dict[str, bytes]:
  if not isinstance(tree, dict):
    return {name: np.asarray(tree).tobytes()}
  return {
    key: value
    for child, branch in tree.items()
    for key, value in leaves(branch, f"{name}/{child}").items()
  }
