"""Runs of a tiny data set that can be interrupted, and what must come of them."""

from collections.abc import Callable
import contextlib
import dataclasses
import itertools
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from mnemonics_jax import augment, methods, runs
from mnemonics_jax.data import images
from mnemonics_jax.phase import Schedule
from mnemonics_jax.progress import Event, Note
from mnemonics_jax.runs import (
  Policy,
  Stopped,
  artifact,
  layout,
  read_metrics,
  runner,
  signals,
)
from support import tiny

SCHEDULE = Schedule(2, 0.05, (1,), batch_size=16)
OPTIONS = dict(
  exemplars="mnemonics",
  adjust=True,
  finetune="all",
  base=SCHEDULE,
  train=SCHEDULE,
  balance=dataclasses.replace(SCHEDULE, learning_rate=0.01, milestones=()),
  augment=augment.CropFlip(1, mirror=False),
)
SPLIT = (2, 1, 1)
ALWAYS, NEVER = Policy(every=0.0), Policy(every=1e9)


def say(event: Event) -> None:
  """A `Report` that prints what a person should know."""
  if isinstance(event, Note):
    print(event.text)


def run(
  workdir: Path,
  saving: Policy = ALWAYS,
  *,
  method: str = "lucir",
  seeds: tuple[int, ...] = (0,),
  base_models: Path | None = None,
  tensorboard: bool = False,
  store: Callable[[np.ndarray], images.Store] | None = None,
  **changes,
) -> dict[str, Any]:
  """Runs the tiny data set to its end, or to an exception.

  With a `store`, all images are read from it.
  """
  config, stream = tiny.setup(
    methods.METHODS[method](),
    split=SPLIT,
    data=_stored(tiny.dataset(classes=sum(SPLIT)), store),
    width=16,
    **(OPTIONS | changes),
  )
  return runs.run(
    config,
    stream,
    workdir,
    seeds=seeds,
    report=say,
    tensorboard=tensorboard,
    base_models=base_models,
    saving=saving,
  )


def _stored(dataset, store):
  if store is None:
    return dataset
  read_later = lambda pixels: images.Stored(
    store(pixels), np.arange(len(pixels))
  )
  return dataclasses.replace(
    dataset,
    train_images=read_later(dataset.train_images),
    test_images=read_later(dataset.test_images),
  )


class _StopWhen(signals.Stop):
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
  stop = mock.patch.object(runner, "Stop", lambda _: _StopWhen(condition))
  with stop, contextlib.suppress(Stopped):
    run(workdir, **changes)
    return True
  return False


def checkpoints(workdir: Path, seed: int = 0) -> list[Path]:
  """All that is among the checkpoints of a seed."""
  return sorted(layout.checkpoint_dir(workdir, seed).iterdir())


def assert_log_is_whole(workdir: Path) -> None:
  """The log is the beginning of a whole one: nothing twice, nothing missing."""
  places = [
    (r["seed"], r["phase"], r["stage"], r["epoch"])
    for r in read_metrics(workdir)
    if r["kind"] == "epoch"
  ]
  settings = layout.read_config(workdir)["settings"]
  if settings["exemplar_chunk"]:  # As many epochs as there are chunks.
    assert len(set(places)) == len(places)
    return
  learned, adjust = settings["exemplars"] == "mnemonics", settings["adjust"]
  epochs = {
    "train": 2,
    "exemplars": 2 if learned else 0,
    "adjust": 4 if adjust else 0,
    "finetune": 2,
  }
  whole = [
    (seed, phase, stage, epoch)
    for seed in settings["seeds"]
    for phase in range(len(SPLIT))
    for stage in epochs
    if phase or stage != "adjust"
    for epoch in range(epochs[stage])
  ]
  assert places == whole[: len(places)]


def files(workdir: Path) -> dict[str, object]:
  """What a run leaves that must not depend on interruptions."""
  kept: dict[str, object] = {"results": (workdir / "results.json").read_bytes()}
  for path in sorted(workdir.glob("seed_*/*.npz")):
    kept[f"{path.parent.name}/{path.name}"] = path.read_bytes()
  for path in sorted(workdir.glob("seed_*/checkpoints/phase_??")):
    tree, _ = artifact.restore(path)
    kept[f"{path.parent.parent.name}/{path.name}"] = leaves(tree)
  return kept


def leaves(tree, name: str = "") -> dict[str, bytes]:
  """The bytes of every array of a tree, by its path."""
  if not isinstance(tree, dict):
    return {name: np.asarray(tree).tobytes()}
  return {
    key: value
    for child, branch in tree.items()
    for key, value in leaves(branch, f"{name}/{child}").items()
  }
