"""Learners on disk: of `Learner.save`, or as a run has left them.

A saved learner is a checkpoint: arrays of the state, and in `info.json` the
learner's settings, the names of the classes and the network.
"""

import ast
import dataclasses
import os
from pathlib import Path
import shutil
from typing import Any

from mnemonics_jax import memory as memory_lib
from mnemonics_jax import phase as phase_lib
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.learner import Known, Learner
from mnemonics_jax.nn.identity import identity, restore
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.phase import Config
from mnemonics_jax.runs import checkpoint, layout
from mnemonics_jax.runs.packing import pack_state, unpack_state


def save(learner: Learner, known: Known, path: Path) -> None:
  """Writes both to `path`, in place of what was saved there before."""
  if path.exists() and not (path / layout.MANIFEST).exists():
    raise UserError(
      "path",
      f"{path} exists and is not a saved learner",
      "choose a new directory",
    )
  info = {
    "learner": _described("learner", learner),
    "network": _described("network", known.network),
    "names": [_written(name) for name in known.names],
    "phases": list(known.phases),
    "phase": known.state.phase,
    "classes_seen": known.state.classes_seen,
    "room": len(known.state.memory.counts),
    "slots": known.state.memory.images.shape[1],
  }
  draft = path.with_name(f"{path.name}.new")
  shutil.rmtree(draft, ignore_errors=True)
  try:
    checkpoint.save(draft, pack_state(known.state), info)
    shutil.rmtree(path, ignore_errors=True)
    os.replace(draft, path)
  except OSError as error:
    raise DiskError(
      "path", f"{path} cannot be written ({error})", "make room"
    ) from error


def _described(field, value):
  try:
    return identity(value)
  except TypeError as error:
    raise UserError(
      field,
      f"the {field} cannot be written down ({error})",
      "use frozen dataclasses instead of functions",
    ) from error


def _written(name):
  """A name as Python would write it."""
  text = repr(name)
  try:
    same = ast.literal_eval(text) == name
  except (ValueError, SyntaxError):
    same = False
  if not same:
    raise UserError(
      "names",
      f"the name {text} cannot be written down",
      "use texts, numbers or tuples of them",
    )
  return text


def load(
  path: Path, network: Any, seed: int | None, phase: int | None
) -> tuple[Learner, Known]:
  """See `Learner.load`."""
  if layout.config_path(path).exists():
    return _of_run(path, network, seed, phase)
  try:
    tree, info = checkpoint.restore(path)
  except checkpoint.Damaged as error:
    raise UserError(
      "path",
      str(error) if path.exists() else f"there is no {path}",
      "name a directory of Learner.save, or the work directory of a run",
    ) from error
  if network is not None:
    info["learner"]["fields"]["network"] = network
    info["network"] = _own(network, info["network"])
  learner, net = _restored(info["learner"]), _restored(info["network"])
  memory = memory_lib.empty(info["room"], info["slots"], net.image_shape)
  names = tuple(ast.literal_eval(name) for name in info["names"])
  state = unpack_state(memory, tree, info)
  return learner, Known(state, names, tuple(info["phases"]), net)


def _own(network, description):
  """A network of the caller, for the images that it was described with."""
  if isinstance(network, Network):
    return network
  return Network(network, tuple(description["fields"]["image_shape"]))


def _restored(description):
  try:
    return restore(description)
  except LookupError as error:
    raise UserError(
      "network",
      f"it was made with {error.args[0]}, which is not part of this package",
      "give it again, as in Learner.load(path, network=...)",
    ) from error


def _of_run(path, network, seed, phase):
  """What a run had learned at the end of a phase."""
  written = layout.read_config(path)
  description = written.get("config")
  if description is None:
    raise UserError(
      "path",
      f"{layout.config_path(path)} does not describe the model: an older version"
      " wrote it, or a part of it has no description",
      "run it again with this version",
    )
  if network is not None:
    fields = description["fields"]
    fields["network"] = _own(network, fields["network"])
  config = _restored(description)
  seed, found = _checkpoint(path, seed, phase)
  tree, info = checkpoint.restore(found)
  begin = phase_lib.begin_run(seed, config)
  state = unpack_state(begin.memory, tree, info)
  learner = Learner(
    seed=seed,
    room=config.model.classes,
    **{
      field.name: getattr(config, field.name)
      for field in dataclasses.fields(Config)
      if field.name in {other.name for other in dataclasses.fields(Learner)}
    },
  )
  names = tuple(written["class_names"][: state.classes_seen])
  phases = config.shape.classes_per_phase[: state.phase]
  return learner, Known(state, names, phases, config.network)


def _checkpoint(path, seed, phase):
  """The seed, and its checkpoint after a phase."""
  seeds = layout.seeds(path)
  if seed is None and seeds:
    seed = seeds[0]
  if seed not in seeds:
    raise UserError(
      "seed",
      f"`seed={seed}` has nothing saved in {path}",
      f"there is {', '.join(map(str, seeds)) or 'none'}",
    )
  directory = layout.checkpoint_dir(path, seed)
  phases = layout.saved_phases(path, seed)
  if phase is None and phases:
    phase = phases[-1]
  if phase not in phases:
    raise UserError(
      "phase",
      f"`phase={phase}` is not saved in {directory}",
      f"there are {', '.join(map(str, phases)) or 'none'}",
    )
  return seed, directory / layout.checkpoint_name(phase)
