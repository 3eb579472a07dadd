"""What was learned, in files that other programs read.

  train/<class>/NNN.png   the exemplars (.jpg, .webp if they are kept so); a folder
                          of images to learn from again
  labels.csv              for each of them its class, in the order of the memory
  model.safetensors       the model's arrays, and the key of what would follow
  model.json              network, classes, normalisation; the learner's settings

`Learner.load` reads them again: predictions are the same to the bit.
"""

import csv
import hashlib
import json
import os
from pathlib import Path
import shutil
from typing import Any

from flax import traverse_util
import numpy as np

from mnemonics_jax import memory as memory_lib
from mnemonics_jax.data.folder import folder_names
from mnemonics_jax.errors import DiskError, UserError
from mnemonics_jax.learner import Known, Learner
from mnemonics_jax.runs import layout, learners
from mnemonics_jax.runs.journal import pack_memory, pack_state

FORMAT = 1
IMAGES, LABELS = "train", "labels.csv"
WEIGHTS, MODEL = "model.safetensors", "model.json"

_HEADER = ("file", "class", "label")
_CHANNELS = 4  # The most that a PNG has.


def export(learner: Learner, known: Known, path: str | Path) -> None:
  """Writes what is known to a new directory.

  >>> learner, known = Learner.load("saved_learner")
  >>> export(learner, known, "exported")
  >>> sorted(path.name for path in Path("exported").iterdir())
  ['labels.csv', 'model.json', 'model.safetensors', 'train']
  >>> Learner.load("exported")[1].names
  ('cat', 'dog', 'fox')

  Args:
    learner: with whose settings it was learned.
    known: what was learned.
    path: where to; must not exist, or be empty.
  """
  path = Path(os.path.expanduser(path)).absolute()
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
  described = learners.describe(learner, known)
  draft = path.with_name(f"{path.name}.{os.getpid()}.draft")
  try:
    draft.mkdir(parents=True)
    _write_exemplars(draft, known)
    weights = _write_weights(draft / WEIGHTS, pack_state(known.state))
    layout.write_json(draft / MODEL, _about(known, described, weights))
    if path.exists():
      path.rmdir()
    os.replace(draft, path)
  except OSError as error:
    shutil.rmtree(draft, ignore_errors=True)
    raise DiskError(
      "to",
      f"`to={path}` cannot be written ({error})",
      "make room there, or choose another directory",
    ) from error


def _about(known, described, weights):
  """The object of model.json: for people and programs, then for `load`."""
  module = getattr(known.network, "module", None)
  return {
    "format": FORMAT,
    "network": type(module or known.network).__name__,
    "image_shape": list(known.network.image_shape),
    "mean": getattr(module, "mean", None),
    "std": getattr(module, "std", None),
    "classes": [str(name) for name in known.names],
    "classes_per_phase": list(known.phases),
    "weights_sha256": weights,
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


def _write_weights(path, tree):
  """The checksum of what was written."""
  from safetensors.numpy import save

  parts = {"variables": tree["variables"], "key": tree["key"]}
  flat: dict[str, Any] = dict(traverse_util.flatten_dict(parts, sep="/"))
  content = save(
    {name: np.array(value, order="C") for name, value in flat.items()}
  )
  path.write_bytes(content)
  return hashlib.sha256(content).hexdigest()


def is_export(path: Path) -> bool:
  """Whether `load` can try."""
  return (path / MODEL).exists() and (path / WEIGHTS).exists()


def load(path: Path, network: Any) -> tuple[Learner, Known]:
  """What `export` has written; see `Learner.load`."""
  from safetensors import SafetensorError
  from safetensors.numpy import load as parse

  try:
    about = json.loads((path / MODEL).read_bytes())
    if about["format"] > FORMAT:
      raise UserError(
        "path",
        f"{path / MODEL} has format {about['format']}, and this version knows"
        f" formats up to {FORMAT}",
        "install the version that wrote it, or a newer one",
      )
    content = (path / WEIGHTS).read_bytes()
    if hashlib.sha256(content).hexdigest() != about["weights_sha256"]:
      raise ValueError(f"{WEIGHTS} changed")
    tree = traverse_util.unflatten_dict(parse(content), sep="/")
    tree["variables"].setdefault("batch_stats", {})
    state, shape = about["state"], tuple(about["image_shape"])
    codec = memory_lib.parse_codec(state.get("codec", "raw"))
    codes, labels = _read_exemplars(path, codec, shape)
    counts = np.bincount(labels, minlength=state["room"])
    tree["memory"] = pack_memory(
      memory_lib.Memory(codes, counts.astype(np.int32), shape, codec)
    )
    return learners.remember(about["state"], tree, network)
  except UserError:  # It has its own remedy, and is a ValueError.
    raise
  except (
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    IndexError,
    SafetensorError,
  ) as error:
    raise UserError(
      "path", f"{path} is damaged ({error})", "export it again"
    ) from error


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
