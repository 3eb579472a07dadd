"""Learners on disk: saved, as a run has left them, or for other programs.

A saved learner has the arrays of its state in `arrays.safetensors`. Its `info.json`
has the learner's settings, the names of the classes and the network. An export is

  train/<class>/NNN.png   the exemplars (.jpg, .webp if they are kept so); a folder
                          of images to learn from again
  labels.csv              for each of them its class, in the order of the memory
  model.safetensors       the model's arrays, and the key of what would follow
  model.json              network, classes, normalisation; the learner's settings
  manifest.json           checksums of all files

`Learner.load` reads each of them: predictions are the same to the bit.
"""

import ast
import contextlib
import csv
import dataclasses
import os
from pathlib import Path
from typing import Any
import warnings

import jax
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.folder import folder_names
from mnemonics_jax.errors import DiskError, UserError, remedy
from mnemonics_jax.identity import identity, restore
from mnemonics_jax.learner import Known, Learner
from mnemonics_jax.nn.networks import Network
from mnemonics_jax.phase import Config
from mnemonics_jax.runs import artifact, drafts, journal, layout
from mnemonics_jax.runs.claim import run_name
from mnemonics_jax.runs.journal import pack_state, unpack_state

EXPORT = artifact.EXPORT
IMAGES, LABELS = "train", "labels.csv"
_HEADER = ("file", "class", "label")
_CHANNELS = 4  # The most that a PNG has.


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
    artifact.save(path, tree, info, kind=artifact.LEARNER, replace=True)
  except OSError as error:
    raise DiskError(
      "path",
      f"{path} cannot be written ({error})",
      f"{remedy(error)}, or choose another directory",
    ) from error


def _is_saved(path):
  try:
    return "learner" in layout.read_json(path / artifact.LEARNER.info)
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
  tree["variables"].setdefault("batch_stats", {})  # Empty parts are not stored.
  codec = memory_lib.parse_codec(info.get("codec", "raw"))
  memory = memory_lib.empty(info["room"], net.image_shape, codec)
  names = tuple(ast.literal_eval(name) for name in info["names"])
  counts = {
    len(names),
    len({*names}),
    info["classes_seen"],
    sum(info["phases"]),
  }
  if len(counts) > 1 or len(names) > info["room"]:
    raise ValueError("names, phases, classes_seen and room disagree")
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
  if (path / EXPORT.info).exists() and (path / EXPORT.arrays).exists():
    return _of_export(path, network)
  tree, info = _read(_found(path))
  if "learner" not in info:
    raise UserError("path", f"{path} is a checkpoint of a run", _NAME_ONE)
  with _told_as_damage(path, "restore it from a copy"):
    return remember(info, tree, network)


@contextlib.contextmanager
def _told_as_damage(path, fix):
  """Turns errors of content that nobody has written so into one sentence."""
  try:
    yield
  except UserError:  # It has its own remedy, and is a ValueError.
    raise
  except _BAD_CONTENT as error:
    why = error.why if isinstance(error, artifact.Damaged) else error
    raise UserError("path", f"{path} is damaged ({why})", fix) from error


_BAD_CONTENT = (
  artifact.Damaged, OSError, ValueError, LookupError, TypeError, AttributeError,
  SyntaxError, RecursionError, MemoryError,
)  # fmt: skip


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
    return "learner" in artifact.restore(path, kind=artifact.LEARNER)[1]
  except (artifact.Damaged, OSError, UserError):
    return False


_NAME_ONE = (
  "name a directory of Learner.save, an export, or the work directory of a run"
)


def _read(path, place=None):
  try:
    return artifact.restore(path, place, artifact.LEARNER)
  except (artifact.Damaged, OSError) as error:
    problem = str(error)
    if not path.exists():
      problem = f"there is no {path}"
    elif not (path / artifact.MANIFEST).exists():
      problem = f"there is nothing learned in {path}"
    raise UserError("path", problem, _NAME_ONE) from error


def run_config(path: Path, network: Any = None) -> Config:
  """The configuration of a run; `network` replaces one of the caller's own."""
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


# Exports.


def export(learner: Learner, known: Known, path: str | Path) -> None:
  """Writes exemplars, weights and their description to a new directory.

  Args:
    learner: with whose settings it was learned.
    known: what was learned.
    path: where to; must not exist, or be empty.
  """
  path = Path(os.path.expanduser(path)).resolve()
  if path.exists() and not (path.is_dir() and not any(path.iterdir())):
    raise UserError(
      "to", f"`to={path}` exists and is not empty", "choose a new directory"
    )
  channels = known.network.image_shape[-1]
  if channels > _CHANNELS:
    raise UserError(
      "to",
      f"images of {channels} channels cannot be written as PNG",
      "use Learner.save",
    )
  described, state = describe(learner, known), pack_state(known.state)
  try:
    artifact.save(
      path,
      {"variables": state["variables"], "key": state["key"]},
      _about(known, described),
      kind=EXPORT,
      more=lambda draft: _write_exemplars(draft, known),
    )
  except OSError as error:
    raise DiskError(
      "to",
      f"`to={path}` cannot be written ({error})",
      "make room there, or choose another directory",
    ) from error


def _about(known, described):
  """The object of model.json: for people and programs, then for `load`."""
  module = getattr(known.network, "module", None)
  return {
    "format": EXPORT.format,
    "network": type(module or known.network).__name__,
    "image_shape": list(known.network.image_shape),
    "mean": getattr(module, "mean", None),
    "std": getattr(module, "std", None),
    "classes": [str(name) for name in known.names],
    "classes_per_phase": list(known.phases),
    "state": described,
  }


def _write_exemplars(directory, known):
  memory = known.state.memory
  folders = dict(zip(known.names, folder_names(known.names), strict=True))
  numbers = dict.fromkeys(known.names, 0)
  codes = memory.codes.apart() if memory.counts.any() else []
  with (directory / LABELS).open(
    "w", encoding="utf-8", errors="backslashreplace", newline=""
  ) as file:
    rows = csv.writer(file)
    rows.writerow(_HEADER)
    for code, label in zip(codes, memory.labels, strict=True):
      name = known.names[label]
      folder = directory / IMAGES / folders[name]
      folder.mkdir(parents=True, exist_ok=True)
      picture = folder / f"{numbers[name]:03d}{memory.codec.suffix}"
      numbers[name] += 1
      picture.write_bytes(memory.codec.to_file(code, memory.image_shape))
      place = picture.relative_to(directory).as_posix()
      rows.writerow([place, str(name), label])


def _of_export(path, network):
  """What `export` has written."""
  with _told_as_damage(path, "export it again"):
    tree, about = artifact.restore(path, kind=EXPORT)
    state, shape = about["state"], tuple(about["image_shape"])
    codec = memory_lib.parse_codec(state.get("codec", "raw"))
    codes, labels = _read_exemplars(path, codec, shape)
    counts = np.bincount(labels, minlength=state["room"])
    tree["memory"] = journal.pack_memory(
      memory_lib.Memory(codes, counts.astype(np.int32), shape, codec)
    )
    return remember(state, tree, network)


def _read_exemplars(path, codec, shape):
  """Codes of the memory, in its order, and their labels."""
  codes, labels = [], []
  with (path / LABELS).open(encoding="utf-8", newline="") as file:
    for row in csv.DictReader(file):
      place = path / row["file"]
      if not place.resolve().is_relative_to(path.resolve()):
        raise ValueError(f"{row['file']} is elsewhere")
      codes.append(codec.from_file(place.read_bytes(), shape))
      labels.append(int(row["label"]))
  if labels != sorted(labels):
    raise ValueError(f"{LABELS} is not in order")
  found = memory_lib.Codes.of(codes)
  codec.decode(found, shape)  # What cannot be decoded is noticed now.
  return found, np.array(labels)
