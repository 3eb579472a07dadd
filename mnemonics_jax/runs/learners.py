"""Learners on disk: of `Learner.save`, or as a run has left them.

A saved learner is a checkpoint: arrays of the state, and in `info.json` the
learner's settings, the names of the classes and the network.
"""

import ast
import dataclasses
import os
from pathlib import Path
from typing import Any
import warnings

import jax

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.errors import DiskError, UserError, remedy
from mnemonics_jax.identity import identity, restore
from mnemonics_jax.learner import Known, Learner
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.phase import Config
from mnemonics_jax.runs import checkpoint, drafts, journal, layout
from mnemonics_jax.runs.claim import run_name
from mnemonics_jax.runs.journal import pack_state, unpack_state


def save(learner: Learner, known: Known, path: Path) -> None:
  """Writes both to `path`, in place of what was saved there before."""
  path = Path(os.path.expanduser(path)).resolve()
  if path.exists() and not _is_saved(path):
    raise UserError(
      "path",
      f"{path} exists and is not a saved learner",
      "choose a new directory",
    )
  tree, info = pack_state(known.state), describe(learner, known)
  try:
    checkpoint.save(path, tree, info, replace=True)
  except OSError as error:
    raise DiskError(
      "path",
      f"{path} cannot be written ({error})",
      f"{remedy(error)}, or choose another directory",
    ) from error


def _is_saved(path):
  try:
    return "learner" in layout.read_json(path / layout.INFO)
  except UserError:
    return False


def describe(learner: Learner, known: Known) -> dict[str, Any]:
  """Learner and knowledge as JSON, but for the arrays."""
  return {
    "learner": _described("learner", learner),
    "network": _described("network", known.network),
    "names": [_written(name) for name in known.names],
    "phases": list(known.phases),
    "phase": known.state.phase,
    "classes_seen": known.state.classes_seen,
    "room": len(known.state.memory.counts),
    "codec": str(known.state.memory.codec),
  }


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
  except (ValueError, SyntaxError, MemoryError, RecursionError):
    same = False
  if not same:
    raise UserError(
      "names",
      f"the name {text} cannot be written down",
      "use texts, numbers or tuples of them",
    )
  return text


def remember(
  info: dict[str, Any], tree: dict[str, Any], network: Any
) -> tuple[Learner, Known]:
  """Learner and knowledge of `describe` and the arrays of `pack_state`.

  Args:
    info: as it was written.
    tree: arrays.
    network: of the caller, if it is not one of this package.
  """
  fields = dict(info["learner"]["fields"])
  fields.pop("room", None)  # Of files from when it was a setting.
  net = info["network"]
  if network is not None:
    fields["network"], net = network, _of_caller(network, net)
  learner, net = _restored(info["learner"] | {"fields": fields}), _restored(net)
  if network is not None:
    _check_fits(net, tree["variables"])
  codec = memory_lib.parse_codec(info.get("codec", "raw"))
  memory = memory_lib.empty(info["room"], net.image_shape, codec)
  names = tuple(ast.literal_eval(name) for name in info["names"])
  state = unpack_state(memory, tree, info)
  return learner, Known(state, names, tuple(info["phases"]), net)


def _of_caller(network, description):
  """A network of the caller, for the images that it was described with."""
  if hasattr(network, "image_shape"):
    return network
  return Network(network, tuple(description["fields"]["image_shape"]))


def _restored(description):
  try:
    return restore(description)
  except LookupError as error:
    raise UserError(
      "network",
      f"it was made with {error.args[0]}, which is not part of this version of"
      " the package",
      "give a network of your own again, as `network=...`",
    ) from error


def _check_fits(network, variables):
  """Refuses a network that has other weights than those that were saved."""
  expected = jax.eval_shape(network.init, jax.random.key(0))["params"]
  shapes = [
    jax.tree.map(lambda leaf: tuple(leaf.shape), tree)
    for tree in (expected, variables["params"]["backbone"])
  ]
  if shapes[0] != shapes[1]:
    raise UserError(
      "network",
      "what was saved are not the weights of this `network`",
      "give the one that it was learned with, with the same sizes",
    )


def load(
  path: Path, network: Any, seed: int | None, phase: int | None
) -> tuple[Learner, Known]:
  """See `Learner.load`."""
  path = Path(os.path.expanduser(path))
  if layout.config_path(path).exists():
    return _of_run(path, network, seed, phase)
  for field, value in (("seed", seed), ("phase", phase)):
    if value is not None:
      raise UserError(
        field,
        f"`{field}={value}` chooses in the work directory of a run, and {path} is"
        " none",
        "leave it out",
      )
  from mnemonics_jax.runs import exports  # It needs this file.

  if exports.is_export(path):
    return exports.load(path, network)
  tree, info = _read(_found(path))
  if "learner" not in info:
    raise UserError("path", f"{path} is a checkpoint of a run", _NAME_ONE)
  return remember(info, tree, network)


def _found(path):
  """Where the learner `path` is, if a kill has kept it from having its name."""
  if path.exists():
    return path
  there = [drafts.found(path.resolve())]
  if path.name:
    # Earlier versions wrote NAME.new, renamed NAME to NAME.old, then NAME.new to NAME.
    there += [path.with_name(f"{path.name}.{word}") for word in ("new", "old")]
  for former in filter(_is_whole, there):
    warnings.warn(
      f"there is no {path}: a save was interrupted, and {former} is read instead",
      stacklevel=4,
    )
    return former
  return path


def _is_whole(path):
  try:
    return "learner" in checkpoint.restore(path)[1]
  except (checkpoint.Damaged, OSError):
    return False


_NAME_ONE = (
  "name a directory of Learner.save, an export, or the work directory of a run"
)


def _read(path, place=None):
  try:
    return checkpoint.restore(path, place)
  except (checkpoint.Damaged, OSError) as error:
    problem = str(error)
    if not path.exists():
      problem = f"there is no {path}"
    elif not (path / layout.MANIFEST).exists():
      problem = f"there is nothing learned in {path}"
    raise UserError("path", problem, _NAME_ONE) from error


def run_config(path: Path, network: Any = None) -> Config:
  """The configuration of the run in a work directory.

  Args:
    path: the work directory.
    network: of the caller, if it is not one of this package.
  """
  config = layout.read_config(path)
  description = config.get("config")
  if description is None or "class_names" not in config:
    raise UserError(
      "path",
      f"{layout.config_path(path)} does not describe the model: an older version"
      " wrote it, or a part of it has no description",
      "run it again with this version",
    )
  fields = dict(description["fields"])
  if network is not None:
    fields["network"] = _of_caller(network, fields["network"])
  return _restored(description | {"fields": fields})


def run_state(path: Path, config: Config, seed: int, phase: int):
  """What a seed of a run knew after a phase, and the info of its checkpoint."""
  name, run = journal.checkpoint_name(phase), run_name(layout.read_config(path))
  place = journal.place_of(run, seed, name)
  tree, info = _read(layout.checkpoint_dir(path, seed) / name, place)
  memory = memory_lib.empty(
    config.model.classes, config.network.image_shape, config.codec
  )
  return unpack_state(memory, tree, info), info


def _of_run(path, network, seed, phase):
  """What a run had learned at the end of a phase."""
  config = run_config(path, network)
  seed, phase = _choice(path, seed, phase)
  state, _ = run_state(path, config, seed, phase)
  if network is not None:
    _check_fits(config.network, state.variables)
  settings = {field.name for field in dataclasses.fields(Learner)}
  learner = Learner(
    seed=seed,
    **{
      field.name: getattr(config, field.name)
      for field in dataclasses.fields(Config)
      if field.name in settings
    },
  )
  names = tuple(layout.read_config(path)["class_names"][: state.classes_seen])
  phases = config.shape.classes_per_phase[: state.phase]
  return learner, Known(state, names, phases, config.network)


def _choice(path, seed, phase):
  """The seed and the phase, by default the first and the last."""
  seeds = layout.seeds(path)
  if seed is None and seeds:
    seed = seeds[0]
  if seed not in seeds:
    raise UserError(
      "seed",
      f"`seed={seed}` has nothing saved in {path}",
      f"there is {', '.join(map(str, seeds)) or 'none'}",
    )
  phases = journal.saved_phases(path, seed)
  if phase is None and phases:
    phase = phases[-1]
  if phase not in phases:
    raise UserError(
      "phase",
      f"`phase={phase}` is not saved in {layout.checkpoint_dir(path, seed)}",
      f"there are {', '.join(map(str, phases)) or 'none'}",
    )
  return seed, phase
