"""A model of phase 0 for everybody: who takes it begins with phase 1.

  model.safetensors   its arrays
  base_model.json     what it was trained on, how, and how well it does

A run finds it among its `base_models` like any other: by what decides its numbers.
As `base_model` of a run, or of a learner, it is taken whatever later phases do, as
long as it knows the same classes.
"""

from collections.abc import Callable, Iterable, Sequence
import dataclasses
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from mnemonics_jax.errors import UserError
from mnemonics_jax.progress import Note
from mnemonics_jax.runs import layout

if TYPE_CHECKING:  # Names of runs are made of it, without waiting for JAX.
  from mnemonics_jax.data import ClassStream
  from mnemonics_jax.phase import Config, Phase, Stage
  from mnemonics_jax.types import Variables

FORMAT = 1
WEIGHTS, ABOUT = "model.safetensors", "base_model.json"

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
  """A published model.

  Attributes:
    path: where it is.
    about: the object of base_model.json.
    variables: its arrays, nested dicts.
  """

  path: Path
  about: dict[str, Any]
  variables: "Variables"


def flatten(tree, path=()):
  """Arrays of nested dicts, by names with dots.

  >>> dict(flatten({"a": {"b": 1}}))
  {'a.b': array(1)}
  """
  for name, part in tree.items():
    if isinstance(part, dict):
      yield from flatten(part, (*path, name))
    else:
      yield ".".join((*path, name)), np.asarray(part)


def about(path: str | Path) -> dict[str, Any]:
  """The object of base_model.json, checked."""
  file = Path(os.path.expanduser(path)) / ABOUT
  try:
    there = file.exists()
  except OSError:  # Such as a name that is too long.
    there = False
  if not there:
    raise UserError(
      "base_model",
      f"`base_model={path}` is not a published model: there is no {ABOUT}",
      "name a directory such as results/base_models/cifar100_resnet32_lucir",
    )
  try:
    found = layout.read_json(file, _ABOUT)
  except layout.WorkdirError as error:
    raise UserError(
      "base_model", f"`base_model`: {error.problem}", "get it anew"
    ) from error
  if found["format"] > FORMAT:
    raise UserError(
      "base_model",
      f"{file} has format {found['format']}, and this version knows formats up to"
      f" {FORMAT}",
      "install a newer version",
    )
  return found


def load(path: str | Path) -> BaseModel:
  """A published model, checked."""
  from safetensors import SafetensorError
  from safetensors.numpy import load as parse

  path = Path(os.path.expanduser(path))
  words = about(path)
  try:
    content = (path / WEIGHTS).read_bytes()
    if hashlib.sha256(content).hexdigest() != words["weights_sha256"]:
      raise ValueError(f"{WEIGHTS} changed")
    variables: dict[str, Any] = {"params": {}, "batch_stats": {}}
    for name, array in parse(content).items():
      *parents, last = name.split(".")
      place = variables
      for parent in parents:
        place = place.setdefault(parent, {})
      place[last] = array
  except (OSError, ValueError, SafetensorError) as error:
    raise UserError(
      "base_model", f"`base_model={path}` is damaged ({error})", "get it anew"
    ) from error
  return BaseModel(path, words, variables)


def network(path: str | Path) -> Any:
  """The network of a published model."""
  from mnemonics_jax.identity import restore

  try:
    return restore(about(path)["made_with"][0][0])
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
  from mnemonics_jax.identity import restore

  for file in sorted(Path(os.path.expanduser(directory)).glob(f"*/{ABOUT}")):
    words = about(file.parent)
    try:
      made = restore(words["made_with"])
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
    model: the model.
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
  shapes = lambda tree: {name: x.shape for name, x in flatten(tree)}
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
