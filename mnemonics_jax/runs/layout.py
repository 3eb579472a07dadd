"""The files of a work directory: their names and fields, writing and reading.

  lock                     which process works here, as long as it does
  config.json              what is run, on which machine, with which packages
  metrics.jsonl            a line for every epoch and phase, as they end
  seed_K/result.json       what seed K measured, when it has finished
  seed_K/phase_NN.npz      arrays of a phase, for pictures
  seed_K/checkpoints/      phase_NN, phase_NN_part_NNN: where seed K can go on
  results.json             all seeds and their summary, when all have finished
  tensorboard/             a copy of metrics.jsonl for TensorBoard

This module has their names, their fields and the number of the format, and it reads and
writes the JSON files. `metrics_log.py`, `phase_arrays.py` and `artifact.py` read and
write the others. docs/formats.md describes all of them for other programs.

It does not import JAX, so that a report starts at once.
"""

from collections.abc import Iterator, Mapping
import json
import os
from pathlib import Path
import re
from typing import Any, NamedTuple

from mnemonics_jax import files
from mnemonics_jax.errors import UserError

AnyPath = str | os.PathLike[str]

# A shape is written as the value is:
#
#   str, int, NUMBER    a value of that type
#   [shape]             a list of at least one value of that shape
#   {"name": shape}     an object with these fields, and perhaps others
#   Each(shape)         an object with any names and values of that shape
#   Maybe(shape)        a field that may be left out
#   OrNull(shape)       that shape, or null


NUMBER = int | float


class Each(NamedTuple):
  """An object with any names, whose values have one shape."""

  shape: Any


class Maybe(NamedTuple):
  """A field that may be left out."""

  shape: Any


class OrNull(NamedTuple):
  """A value that may be null."""

  shape: Any


def mismatch(value: Any, shape: Any, where: str = "") -> str:
  """The first place where `value` does not have the shape, in words, or "".

  Args:
    value: as `json.loads` returns it.
    shape: what it should look like.
    where: the place of `value` in a larger one, such as `runs[0].seed`.
  """
  return next(_mismatches(value, shape, where), "")


def _mismatches(value: Any, shape: Any, where: str) -> Iterator[str]:
  match shape:
    case Maybe(inner):
      yield from _mismatches(value, inner, where)
    case OrNull(inner):
      if value is not None:
        yield from _mismatches(value, inner, where)
    case list([inner]):
      if not isinstance(value, list) or not value:
        yield f"{where} should be a list with at least one entry"
        return
      for index, entry in enumerate(value):
        yield from _mismatches(entry, inner, f"{where}[{index}]")
    case Each() | dict():
      if not isinstance(value, dict):
        yield f"{where or 'it'} should be an object"
        return
      if isinstance(shape, Each):
        shape = dict.fromkeys(value, shape.shape)
      for name, inner in shape.items():
        if name in value:
          place = f"{where}.{name}" if where else name
          yield from _mismatches(value[name], inner, place)
        elif not isinstance(inner, Maybe):
          yield f"{where} lacks {name}".lstrip()
    case _:
      if not isinstance(value, shape):
        yield f"{where} has a wrong type"


# Formats and fields.

FORMAT = 2
"""Version of all files together; config.json has it. Without it, it is 1.

Formats 1 and 2 differ in that field only.
"""

_LOCK, _CONFIG, _METRICS = "lock", "config.json", "metrics.jsonl"
_RESULTS, _SEED_RESULT = "results.json", "result.json"
_TENSORBOARD = "tensorboard"

# The part of results.json that a run writes before it measures anything.
HEADER = {
  "title": str,  # A name for people.
  "dataset": str,
  "method": str,
  "exemplars": str,  # "random", "herding", "selected" or "mnemonics".
  "memory": str,  # "per_class:20", "total:2000", "per_class_bytes:61440"...
  "codec": Maybe(str),  # "raw", "jpeg:75"...: how exemplars are kept.
  "readout": str,  # The read-out that counts for this method.
  "preset": Maybe(str),  # Of the command line.
  "schedule": str,  # "paper", or "reduced" for anything else.
  "departures": Maybe(list),  # In what it differs from the paper, in words.
  "classes_per_phase": [int],
  "class_names": [str],  # In the order in which they are learned.
}
CONFIG = {
  "format": Maybe(int),  # See FORMAT.
  "command": Maybe(str),  # What was typed to begin the run.
  "settings": Maybe({}),  # All that decides the numbers.
  # phase.Config, by class and field.
  "config": Maybe(OrNull({"class": str, "fields": {}})),
  "class_names": Maybe([str]),  # In the order in which they are learned.
  "results": Maybe(HEADER),  # What results.json will say before its numbers.
  "data": Maybe(int),  # CRC-32 of the images and labels.
  "numerics": Maybe(int),  # Version of the numbers; see `version.NUMERICS`.
  "environment": Maybe({}),  # Python, packages, commit, devices, date.
}

# Accuracies are shares in [0, 1]. Read-outs are "head" and "nme".
PHASE = {
  "phase": int,  # From 0, the base phase.
  "classes_seen": int,  # The test covers so many classes.
  "accuracy": Each(NUMBER),  # By read-out: on all classes seen.
  # Classes with test images, if there are none of some: accuracies are over
  # these only.
  "classes_tested": Maybe(int),
  # By read-out: on the classes of phase 0, 1...; null where nothing is tested.
  "by_group": Each([OrNull(NUMBER)]),
  # By moment ("trained" before the fine-tune, "final" after it) and read-out:
  # on all classes seen, on those of earlier phases (null in phase 0), on new.
  "moments": Maybe(
    Each(Each({"all": NUMBER, "old": OrNull(NUMBER), "new": NUMBER}))
  ),
  "memory": {"images": int, "bytes": int},  # Exemplars kept after the phase.
  "diagnostics": Maybe({}),  # By stage: what it has to tell, by meta epoch.
}
SEED_RESULT = {
  "seed": int,
  "phases": [PHASE],
  # By read-out: mean accuracy of the phases that tested all classes.
  "average": Each(NUMBER),
  # By read-out: what accuracy on the base classes lost from phase 0 to the end.
  # Null if one of them did not test all classes.
  "forgetting": Each(OrNull(NUMBER)),
}

# Mean over the seeds, half-width of its 95 % interval (null for one seed).
ESTIMATE = {"mean": NUMBER, "ci95": Maybe(OrNull(NUMBER))}
RESULTS = HEADER | {
  "seeds": [int],
  "runs": [SEED_RESULT],  # In the order of `seeds`.
  "summary": Each(  # By read-out.
    {
      "average": ESTIMATE,
      "forgetting": ESTIMATE | {"mean": OrNull(NUMBER)},
      "per_phase": [ESTIMATE],
    }
  ),
}

# Lines of metrics.jsonl, by their `kind`. An epoch has its means besides (loss,
# accuracy, lr...), a phase has the fields of PHASE.
METRICS = {
  "epoch": {
    "seed": int,
    "phase": int,
    "stage": str,  # "train", "exemplars", "adjust", "finetune".
    "epoch": int,  # From 0, in this stage.
    "seconds": NUMBER,  # Since the epoch before it, whatever its stage.
  },
  "phase": {
    "seed": int,
    "phase": int,
    "seconds": Each(NUMBER),  # By stage.
  },
}

# Arrays of phase_NN.npz. Classes are numbered in the order they are learned.
PHASE_ARRAYS = {
  "memory/images": "uint8 [seen, slots, h, w, c]; the first of each class, zeros",
  "memory/counts": "int [seen]; how many there are",
  "confusion/MOMENT/READOUT": "int [seen, seen]; true class, predicted class",
  "changed/STAGE/before": "uint8 [n, h, w, c]; as the stage found some images",
  "changed/STAGE/after": "the same images as the stage left them",
  "changed/STAGE/labels": "int [n]; their classes",
  "features/test": "float16 [n, d]; of up to 30 test images of each class",
  "features/test_labels": "int [n]; their classes",
  "features/exemplars": "float16 [n, d]; of up to 10 exemplars of each class",
  "features/exemplars_labels": "int [n]; their classes",
}


class WorkdirError(UserError):
  """A work directory that cannot be used; the field is the file's name."""


class DamagedFile(WorkdirError):
  """A file of a work directory that is not what a run has written."""


# Where files are.


def lock_path(workdir: AnyPath) -> Path:
  return Path(workdir) / _LOCK


def tensorboard_dir(workdir: AnyPath) -> Path:
  return Path(workdir) / _TENSORBOARD


def config_path(workdir: AnyPath) -> Path:
  return Path(workdir) / _CONFIG


def metrics_path(workdir: AnyPath) -> Path:
  return Path(workdir) / _METRICS


def results_path(workdir: AnyPath) -> Path:
  return Path(workdir) / _RESULTS


def seed_dir(workdir: AnyPath, seed: int) -> Path:
  return Path(workdir) / f"seed_{seed}"


def seed_result_path(workdir: AnyPath, seed: int) -> Path:
  return seed_dir(workdir, seed) / _SEED_RESULT


def phase_arrays_path(workdir: AnyPath, seed: int, phase: int) -> Path:
  return seed_dir(workdir, seed) / f"phase_{phase:02d}.npz"


def checkpoint_dir(workdir: AnyPath, seed: int) -> Path:
  return seed_dir(workdir, seed) / "checkpoints"


def seeds(workdir: AnyPath) -> list[int]:
  """Of which something is there."""
  found = (re.fullmatch(r"seed_(\d+)", p.name) for p in Path(workdir).glob("*"))
  return sorted(int(name[1]) for name in found if name)


# JSON.


def write_json(path: Path, value: Any) -> None:
  """Replaces the file at once; its directory is made if need be."""
  path.parent.mkdir(parents=True, exist_ok=True)
  files.write_text(path, json.dumps(value, indent=1) + "\n")


def read_json(path: Path, shape: Any = None) -> dict[str, Any]:
  """The object in a file.

  Args:
    path: of the file.
    shape: fields that it must have; None accepts any.

  Raises:
    WorkdirError: it cannot be read, or is not what it should be.
  """
  try:
    value = json.loads(path.read_bytes())
  except OSError as error:
    raise unreadable(path, error) from error
  except (ValueError, RecursionError) as error:
    raise damaged(path, error) from error
  if problem := mismatch(value, {} if shape is None else shape):
    raise damaged(path, problem)
  return value


def write_config(workdir: AnyPath, config: Mapping[str, Any]) -> None:
  """Writes config.json; adds its format."""
  write_json(config_path(workdir), {"format": FORMAT, **config})


def read_config(workdir: AnyPath) -> dict[str, Any]:
  """config.json; empty if there is none.

  Read it first: it has the format of all files.

  Raises:
    WorkdirError: it is damaged, or the run was made by a newer version.
  """
  path = config_path(workdir)
  if not path.exists():
    return {}
  config = read_json(path, CONFIG)
  if config.get("format", 1) > FORMAT:
    raise WorkdirError(
      path.name,
      f"{path} has format {config['format']}, and this version of mnemonics_jax"
      f" knows formats up to {FORMAT}",
      "install the version that wrote it, or a newer one",
    )
  return config


def write_seed_result(
  workdir: AnyPath, seed: int, record: Mapping[str, Any]
) -> None:
  """Writes what `results.run_record` returns."""
  write_json(seed_result_path(workdir, seed), record)


def read_seed_result(workdir: AnyPath, seed: int) -> dict[str, Any]:
  return read_json(seed_result_path(workdir, seed), SEED_RESULT)


def write_results(workdir: AnyPath, results: Mapping[str, Any]) -> None:
  write_json(results_path(workdir), results)


def read_results(workdir: AnyPath) -> dict[str, Any]:
  """results.json, whose parts fit together."""
  path = results_path(workdir)
  results = read_json(path, RESULTS)
  if problem := _contradiction(results):
    raise damaged(path, problem)
  return results


def _contradiction(results: dict[str, Any]) -> str:
  """The first disagreement between parts of results.json, or ""."""
  phases = len(results["classes_per_phase"])
  if sum(results["classes_per_phase"]) != len(results["class_names"]):
    return "class_names and classes_per_phase disagree"
  if results["readout"] not in results["summary"]:
    return f"summary lacks {results['readout']}, the reported read-out"
  for run in results["runs"]:
    if len(run["phases"]) != phases:
      return f"seed {run['seed']} does not have {phases} phases"
  for name, summary in results["summary"].items():
    if len(summary["per_phase"]) != phases:
      return f"summary.{name}.per_phase does not have {phases} entries"
    for run in results["runs"]:
      parts = [run["average"], run["forgetting"]]
      parts += [phase["accuracy"] for phase in run["phases"]]
      if not all(name in part for part in parts):
        return f"seed {run['seed']} lacks numbers for {name}"
      groups = [phase["by_group"].get(name, ()) for phase in run["phases"]]
      if list(map(len, groups)) != list(range(1, phases + 1)):
        return f"seed {run['seed']} lacks class groups for {name}"
  return ""


# What can be done about it.


def unreadable(path: Path, error: OSError) -> WorkdirError:
  """The error for a file that the system does not hand out."""
  return WorkdirError(
    path.name,
    f"{path} cannot be read ({error.strerror or error})",
    "see to it that it is there and may be read",
  )


def damaged(path: Path, why: object) -> DamagedFile:
  """The error for a file that is not what a run has written."""
  fix = {
    _CONFIG: "repeat the command of the run, which writes it again",
    _RESULTS: _AGAIN,
    _SEED_RESULT: _AGAIN,
  }.get(path.name, "restore it from a copy, or remove it")
  return DamagedFile(path.name, f"{path} is damaged ({why})", fix)


_AGAIN = "remove it and repeat the command of the run, which writes it again"
