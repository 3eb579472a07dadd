"""Models of phase 0: trained once for all runs that begin with the same phase.

Runs that differ only in their exemplars, memory or later phases have the same model
after phase 0. `train` keeps it under a name made of everything that decides it: the
data, the seed, what phase 0 does, and the version of the numerics. A run that finds
its own takes it, and gets the numbers it would have had.

A published model is for everybody:

  model.safetensors   its arrays
  base_model.json     what it was trained on, how, and how well it does
  manifest.json       checksums of both

A run finds it among its `base_models` like any other, by what decides its numbers. As
`base_model` of a run or of a learner it is taken whatever later phases do, as long as
it knows the same classes.

Names of runs are made of what a published model says: nothing here waits for JAX
before a model is used.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import os
from pathlib import Path
import shutil
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mnemonics_jax import identity
from mnemonics_jax.errors import DiskError, UserError, remedy
from mnemonics_jax.package import NUMERICS
from mnemonics_jax.progress import Note
from mnemonics_jax.runs import artifact, drafts, layout

if TYPE_CHECKING:
  from mnemonics_jax.data import ClassStream
  from mnemonics_jax.phase import Config, Phase, Stage
  from mnemonics_jax.types import Variables


# Kept for other runs of the same user.


def train(directory: Path, phase: "Phase", stage: "Stage") -> "Variables":
  """`train_model`, whose base model is read from `directory` or kept there."""
  from mnemonics_jax.parallel import processes
  from mnemonics_jax.phase.train import train_model
  from mnemonics_jax.runs import environment

  if phase.state.phase > 0:
    return train_model(phase, stage)
  path = directory / _name(phase)
  found = path.exists()
  if not processes.all_equal(found):
    raise UserError(
      "base_models",
      f"`base_models={directory}` is not the same for all processes: some find"
      f" {path.name} there, and others do not",
      "put it on a disk that all machines see",
    )
  # One that was begun here goes on, for its epochs are in the log.
  if not found or stage.journal.started(stage.entry):
    variables = train_model(phase, stage)
    try:
      if not found:
        info = {environment.KERNELS: environment.kernels()}
        artifact.save(
          path, variables, info, {"name": path.name}, kind=artifact.BASE_MODEL
        )
    except OSError as error:
      if not path.exists():  # Another run may have been faster.
        raise DiskError(
          "base_models",
          f"`base_models={directory}` cannot be written ({error})",
          f"{remedy(error)}, or choose another one",
        ) from error
  drafts.remove_drafts(directory, path.name)
  for draft in directory.glob(f"{path.name}.partial-*"):  # Of version 0.1.
    shutil.rmtree(draft, ignore_errors=True)
  place = {"name": path.name}
  try:
    variables, info = artifact.restore(path, place, artifact.BASE_MODEL)
  except artifact.Damaged as error:
    raise UserError(
      "base_models",
      f"`base_models`: {error}",
      "remove it, and it is trained again",
    ) from error
  except OSError as error:
    raise DiskError(
      "base_models",
      f"`base_models`: {path} cannot be read now ({error})",
      "if that lasts, remove it, and it is trained again",
    ) from error
  if change := environment.kernels_changed(info):
    stage.report(
      Note(
        f"Since the base model {path} was trained, {change}: bits differ, numbers"
        " agree to rounding."
      )
    )
  return variables


def _name(phase):
  """A digest of the data, the seed and the configuration of phase 0."""
  import jax

  from mnemonics_jax.data.images import checksum

  config, data = phase.config, phase.data
  images = data.images
  # To have the name of the same images in memory, all would have to be read.
  if not isinstance(images, np.ndarray):
    images = np.array(checksum(images))
  # Nothing is old that could be distilled.
  method = dataclasses.replace(config.method, distill=True)
  parts = [
    NUMERICS,
    identity.identity(config.model),
    identity.identity(method),
    identity.identity(config.base),
    identity.identity(config.augment),
    len(data.labels),
    data.new_classes,
    int(phase.held_out.sum()),  # How many depends on the memory.
  ]
  key = jax.random.key_data(phase.state.key)
  return identity.digest(images, data.labels, key, parts)[:16]


# Published for everybody.

PUBLISHED = artifact.PUBLISHED

_ABOUT = {
  "format": int,
  "numerics": int,  # Version of the numbers that it was trained with.
  "dataset": str,
  "class_names": [str],  # Of the rows of the head.
  "accuracy": {},  # By read-out, on the test images of these classes.
  "made_with": list,  # By which `base_models` finds it.
  "weights_sha256": str,
}


class BaseModel(NamedTuple):
  """A published model."""

  path: Path
  about: dict[str, Any]  # The object of base_model.json.
  variables: "Variables"


def about(path: str | Path) -> dict[str, Any]:
  """The object of base_model.json, checked."""
  file = Path(os.path.expanduser(path)) / PUBLISHED.info
  try:
    there = file.exists()
  except OSError:  # Such as a name that is too long.
    there = False
  if not there:
    raise UserError(
      "base_model",
      f"`base_model={path}` is not a published model: there is no {PUBLISHED.info}",
      "name a directory such as results/base_models/cifar100_resnet32_lucir",
    )
  try:
    found = layout.read_json(file, _ABOUT)
  except layout.WorkdirError as error:
    raise UserError(
      "base_model", f"`base_model`: {error.problem}", "get it anew"
    ) from error
  if found["format"] > PUBLISHED.format:
    raise UserError(
      "base_model",
      f"{file} has format {found['format']}, and this version knows formats up to"
      f" {PUBLISHED.format}",
      "install a newer version",
    )
  return found


def load(path: str | Path) -> BaseModel:
  """A published model, checked."""
  path = Path(os.path.expanduser(path))
  words = about(path)
  try:
    arrays, _ = artifact.restore(path, kind=PUBLISHED)
  except (artifact.Damaged, OSError) as error:
    why = error.why if isinstance(error, artifact.Damaged) else error
    raise UserError(
      "base_model", f"`base_model={path}` is damaged ({why})", "get it anew"
    ) from error
  return BaseModel(path, words, {"params": {}, "batch_stats": {}} | arrays)


def network(path: str | Path) -> Any:
  """The network of a published model."""
  try:
    return identity.restore(about(path)["made_with"][0][0])
  except LookupError as error:
    raise UserError(
      "base_model",
      f"`base_model={path}` has a network that this version does not know"
      f" ({error.args[0]})",
      "get it anew",
    ) from error


def first_names(stream: "ClassStream") -> tuple[str, ...]:
  """Names of the classes of phase 0."""
  return stream.class_names[: stream.classes_per_phase[0]]


def find(
  directory: Path, config: "Config", stream: "ClassStream", seed: int
) -> BaseModel | None:
  """The published model of a directory that a run would train itself.

  What it was made with is compared as values, not as text: settings that came
  later have their defaults.
  """
  for file in sorted(
    Path(os.path.expanduser(directory)).glob(f"*/{PUBLISHED.info}")
  ):
    words = about(file.parent)
    try:
      made = identity.restore(words["made_with"])
    except LookupError:  # By a version that had other settings.
      continue
    if made == made_with(config, stream.checksum, first_names(stream), seed):
      return load(file.parent)
  return None


def made_with(config, data, names, seed):
  """All that decides the model of phase 0, as values; None if the memory does."""
  if config.method.holdout:
    return None
  sizes = config.shape.class_sizes[: len(names)]
  # Nothing is old that could be distilled.
  method = dataclasses.replace(config.method, distill=True)
  return (
    (config.network, method, config.base, config.augment),
    (data, tuple(names), tuple(sizes), seed),
  )


def begin_with(
  model: BaseModel, class_names: Iterable[Any]
) -> "Callable[[Phase, Stage], Variables]":
  """`train_model`, but phase 0 takes a published model.

  Args:
    model: taken if it knows these classes.
    class_names: of phase 0, in the order in which they are learned.
  """
  from mnemonics_jax.phase.train import train_model

  rows = _rows(model, list(map(str, class_names)))

  def train(phase: "Phase", stage: "Stage") -> "Variables":
    if phase.state.phase > 0:
      return train_model(phase, stage)
    stage.report(Note(f"Phase 0 takes the model in {model.path}."))
    return _fitted(model, phase.state.variables, rows)

  return train


def _rows(model, names: Sequence[str]) -> list[int]:
  """Rows of the published head, for classes in the order that is wanted."""
  known = model.about["class_names"]
  if sorted(known) != sorted(names):
    other = sorted(set(names) ^ set(known))[:3]
    raise UserError(
      "base_model",
      f"`base_model={model.path}` knows {len(known)} classes of"
      f" {model.about['dataset']}, and phase 0 has others ({', '.join(other)}...)",
      f"let phase 0 have the same {len(known)} classes",
    )
  return [known.index(name) for name in names]


def _fitted(model, fresh, rows):
  """The arrays of a published model in the shapes of a model's own."""
  import jax.numpy as jnp

  stored = model.variables
  shapes = lambda tree: {name: x.shape for name, x in artifact.flatten(tree)}
  for part in ("params", "batch_stats"):
    one, other = (
      shapes({k: v for k, v in tree[part].items() if k != "head"})
      for tree in (fresh, stored)
    )
    if one != other:
      raise _unfit(model, "network", "network")
  head = {}
  for name, leaf in fresh["params"]["head"].items():
    found = stored["params"].get("head", {}).get(name)
    if found is None or found.ndim != leaf.ndim:
      raise _unfit(model, "method", "head")
    if leaf.ndim:
      found = jnp.asarray(leaf).at[: len(rows)].set(found[np.array(rows)])
    head[name] = jnp.asarray(found)
  return fresh | {
    "params": {"backbone": stored["params"]["backbone"], "head": head},
    "batch_stats": stored["batch_stats"],
  }


def _unfit(model, field, what):
  return UserError(
    "base_model",
    f"`base_model={model.path}` has another {what}",
    f"use the `{field}` that it was trained with",
  )


def publish(
  base_model: str | Path, run: str | Path, to: str | Path
) -> dict[str, Any]:
  """Writes a base model that a run began with to a new directory.

  Args:
    base_model: one in the directory that the run had as `base_models`.
    run: its work directory; it has ended phase 0, and did not tune the whole model
      at its end.
    to: where to.

  Returns:
    The object of base_model.json.
  """
  from mnemonics_jax.runs import learners

  base_model, run, to = Path(base_model), Path(run), Path(to).resolve()

  try:
    variables, info = artifact.restore(base_model, kind=artifact.BASE_MODEL)
  except (artifact.Damaged, OSError) as error:
    problem = str(error)
    if not base_model.exists():
      problem = f"there is no base model {base_model}"
    raise UserError(
      "model", problem, "name one below the directory of `base_models`"
    ) from error
  if to.exists():
    raise UserError("to", f"{to} exists", "choose a new directory")
  seed = _seed_of(base_model, run, variables)
  config = layout.read_config(run)
  for field in ("results", "data", "numerics"):
    if field not in config:
      raise UserError(
        "run",
        f"{layout.config_path(run)} lacks {field}: an older version wrote it",
        "run it again with this version",
      )
  results = config["results"]
  names = results["class_names"][: results["classes_per_phase"][0]]
  parts = made_with(learners.run_config(run), config["data"], names, seed)
  if parts is None:
    raise UserError(
      "run",
      "the method holds images out for a memory, and others cannot begin with that",
      "publish a model of another method",
    )
  accuracy = _accuracy(run, seed)
  words = {
    "format": PUBLISHED.format,
    "numerics": config["numerics"],
    "dataset": results["dataset"],
    "class_names": names,
    "accuracy": accuracy,
    "made_with": identity.identity(parts),
    "convolutions": info.get("convolutions"),
    "command": config.get("command"),
    "commit": config.get("environment", {}).get("git_commit"),
  }
  try:
    artifact.save(to, variables, words, kind=PUBLISHED)
  except OSError as error:
    raise DiskError(
      "to",
      f"`to={to}` cannot be written ({error})",
      f"{remedy(error)}, or choose another directory",
    ) from error
  return about(to)


def _seed_of(base_model, run, variables):
  """The seed of a run that began with a model."""
  from mnemonics_jax.runs import journal

  backbone = lambda tree: dict(artifact.flatten(tree["params"]["backbone"]))
  mine = backbone(variables)
  for seed in layout.seeds(run):
    first = layout.checkpoint_dir(run, seed) / journal.checkpoint_name(0)
    try:
      other = backbone(artifact.restore(first)[0]["variables"])
    except (artifact.Damaged, OSError):
      continue
    if mine.keys() == other.keys() and all(
      np.array_equal(mine[name], other[name]) for name in mine
    ):
      return seed
  raise UserError(
    "run",
    f"no seed of {run} has ended phase 0 with {base_model}",
    "name the run that began with it; one that fine-tunes whole models has changed"
    " it",
  )


def _accuracy(run, seed):
  """Right after training, by read-out."""
  from mnemonics_jax.runs.metrics_log import read_metrics

  for line in read_metrics(run):
    place = line.get("kind"), line.get("seed"), line.get("phase")
    moments = line.get("moments", {}).get("trained")
    if place == ("phase", seed, 0) and moments is not None:
      return {name: shares["all"] for name, shares in moments.items()}
  raise UserError("run", f"{run} has no numbers of phase 0", "let it go on")
