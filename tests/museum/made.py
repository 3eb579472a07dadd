"""What the museum's runs and learners learn, and how: the same for every version."""

from collections.abc import Callable
import contextlib
from pathlib import Path
import signal
from typing import Any
from unittest import mock

import numpy as np

from mnemonics_jax import Learner, PerClass, augment, methods, networks, runs
from mnemonics_jax import phase as phase_lib
from mnemonics_jax.bilevel import BilevelConfig
from mnemonics_jax.data import ClassStream, Dataset
from mnemonics_jax.memory import Jpeg
from mnemonics_jax.progress import Event, StepReport

ROOM = Path(__file__).parent
SPLIT = (2, 1)
_ONCE = phase_lib.Schedule(2, 0.05, (1,), batch_size=8)
_SIDE = 8


def dataset() -> Dataset:
  """A pattern for each class, with noise; made without any code of the library."""
  rng = np.random.RandomState(5)
  patterns = rng.randint(0, 256, (sum(SPLIT), _SIDE, _SIDE, 3))

  def draw(count: int) -> tuple[np.ndarray, np.ndarray]:
    labels = np.repeat(np.arange(sum(SPLIT), dtype=np.int32), count)
    noise = rng.randint(-90, 91, (len(labels), _SIDE, _SIDE, 3))
    images = np.clip(patterns[labels] + noise, 0, 255).astype(np.uint8)
    return images, labels

  names = tuple(f"class {label}" for label in range(sum(SPLIT)))
  return Dataset(
    "museum",
    *draw(8),
    *draw(4),
    class_names=names,
    mean=(0.5, 0.5, 0.5),
    std=(0.25, 0.25, 0.25),
  )


def setup(**changes: Any) -> tuple[phase_lib.Config, ClassStream]:
  """The configuration of the museum's runs, with changes, and their stream."""
  data = dataset()
  stream = ClassStream(data, range(sum(SPLIT)), SPLIT)
  options: dict[str, Any] = dict(
    memory=PerClass(2),
    exemplars="mnemonics",
    adjust=True,
    transfer="in_out",
    finetune="head",
    bilevel=BilevelConfig(epochs=2, steps_per_epoch=2, inner_steps=2),
    base=_ONCE,
    train=_ONCE,
    balance=_ONCE,
    augment=augment.CropFlip(1),
  )
  network = networks.resnet8(
    width=2, image_shape=data.image_shape, mean=data.mean, std=data.std
  )
  return phase_lib.Config(
    network, methods.LUCIR(), stream.shape, **(options | changes)
  ), stream


def run(workdir: Path, options: Any = None, **changes: Any) -> dict[str, Any]:
  """Runs it, or continues it; `options` are those of `runs.run`."""
  config, stream = setup(**changes)
  return runs.run(config, stream, workdir, **(options or {}))


def run_until(
  workdir: Path, there: Callable[[StepReport], bool], **changes: Any
) -> None:
  """Stops a run by a signal at the first step for which `there` is true."""

  def hear(event: Event) -> None:
    if isinstance(event, StepReport) and there(event):
      signal.raise_signal(signal.SIGTERM)

  with contextlib.suppress(runs.Stopped):
    run(workdir, dict(report=hear, saving=runs.Policy(keep=1)), **changes)
    raise AssertionError("the run was not stopped")


def learner() -> Learner:
  """A learner with a method, a codec and a network unlike those of the runs."""
  return Learner(
    networks.resnet8(width=2, image_shape=(_SIDE, _SIDE, 3)),
    methods.BiC(),
    memory=PerClass(3),
    codec=Jpeg(90),
    exemplars="herding",
    base=_ONCE,
    train=_ONCE,
    balance=_ONCE,
    augment=augment.CropFlip(1),
  )


# Of the data sets that come with commands: the command, its flags, and whether
# class folders are needed. `names.json` has what de09587 called each.
NAMED = {
  "plain": ("digits", ()),
  "lwf": ("digits", ("--method=lwf", "--preset=fast", "--seeds=0,1")),
  "icarl": ("digits", ("--method=icarl", "--memory=total:30", "--codec=jpeg:75")),
  "e2e": ("digits", ("--method=e2e", "--phases=2", "--nodistill", "--exemplars=random")),
  "bic": ("digits", ("--method=bic", "--memory=per_class_bytes:4000", "--codec=webp:50", "--exemplars=herding")),
  "joint": ("digits", ("--method=joint", "--preset=smoke")),
  "paper": ("digits", ("--preset=paper", "--reference_code", "--order_seed=7")),
  "drift": ("digits", ("--preset=smoke", "--drift=2", "--frequencies=4")),
  "imitate": ("digits", ("--preset=smoke", "--imitate", "--exemplar_chunk=2")),
  "selected": ("digits", ("--exemplars=selected", "--rehearsal=4", "--curve=cosine")),
  "tuning": ("digits", ("--tuning_fraction=0.2", "--learning_rate=0.05", "--base_learning_rate=0.1", "--less_forget=3")),
  "best": ("digits", ("--preset=best", "--code_new", "--transfer=out", "--finetune=all")),
  "remat": ("digits", ("--remat", "--dtype=bfloat16", "--net=resnet32", "--stream=always")),
  "folder": ("folder", ("--data=photos", "--preset=smoke", "--phases=1", "--memory=per_class:2")),
  "folder small": ("folder", ("--data=photos", "--preset=best", "--image_size=32", "--val_fraction=0.5", "--phases=1", "--memory=per_class_bytes:6000")),
}  # fmt: skip


def write_photos(root: Path) -> None:
  """Class folders of a few photographs, of sizes of their own."""
  from PIL import Image

  rng = np.random.RandomState(6)
  for label in ("ant", "bee", "cat"):
    for number in range(6):
      folder = root / "photos" / label
      folder.mkdir(parents=True, exist_ok=True)
      pixels = rng.randint(0, 256, (40 + number, 44, 3)).astype(np.uint8)
      Image.fromarray(pixels).save(folder / f"{number}.png")


def named(name: str, cwd: Path) -> Path:
  """Begins one of the `NAMED` in `cwd`, up to its training; its directory."""
  from support import command

  of, flags = NAMED[name]
  if of == "folder":
    write_photos(cwd)
  with contextlib.suppress(command.Accepted), mock.patch.dict("os.environ"):
    raise AssertionError(command.call(of, *flags, cwd=cwd))
  (directory,) = (
    path for path in (cwd / "runs").iterdir() if path.name != "base_models"
  )
  return directory
