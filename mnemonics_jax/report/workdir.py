"""Reading a finished run's work directory, with errors a user can act on."""

from collections.abc import Sequence
import dataclasses
import functools
import itertools
import json
import os
from pathlib import Path
from typing import Any
import zipfile

import numpy as np

from mnemonics_jax.report.metrics_log import read_metrics


class WorkdirError(ValueError):
  """A work directory that cannot be reported on; the message is a sentence."""


# What the tables, figures and the page rely on: a type, a list of one shape,
# or fields. {} is any object.
_NUMBER = (int, float)
_ESTIMATE = {"mean": _NUMBER}
_RESULTS = {
  "title": str,
  "dataset": str,
  "method": str,
  "exemplars": str,
  "memory": str,
  "readout": str,
  "schedule": str,
  "classes_per_phase": [int],
  "class_names": [str],
  "seeds": [int],
  "runs": [
    {
      "seed": int,
      "phases": [
        {
          "phase": int,
          "classes_seen": int,
          "accuracy": {},
          "by_group": {},
          "memory": {"images": int, "bytes": int},
        }
      ],
      "average": {},
      "forgetting": {},
    }
  ],
  "summary": {},
}
_SUMMARY = {
  "average": _ESTIMATE,
  "forgetting": _ESTIMATE,
  "per_phase": [_ESTIMATE],
}


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run as it lies on disk.

  Attributes:
    path: the work directory.
    config: config.json, empty when there is none.
    results: results.json.
  """

  path: Path
  config: dict[str, Any]
  results: dict[str, Any]

  @functools.cached_property
  def metrics(self) -> list[dict[str, Any]]:
    try:
      return read_metrics(self.path)
    except (OSError, ValueError) as error:
      raise WorkdirError(f"Cannot read the metrics: {error}.") from None

  @property
  def durations(self) -> list[float]:
    """Seconds of each seed, 0 where they are not known."""
    spent = dict.fromkeys(self.results["seeds"], 0.0)
    for record in self.metrics:
      if record.get("kind") == "phase" and record.get("seed") in spent:
        spent[record["seed"]] += sum(record.get("seconds", {}).values())
    return [*spent.values()]

  def arrays(
    self, seed: int, phase: int, prefix: str = ""
  ) -> dict[str, np.ndarray]:
    """What a phase saved under names with a prefix; empty when nothing."""
    path = self.path / f"seed_{seed}" / f"phase_{phase:02d}.npz"
    if not path.exists():
      return {}
    try:
      # Opened here, because np.load leaves a file open that is no archive.
      with open(path, "rb") as raw, np.load(raw, allow_pickle=False) as file:
        return {
          name: file[name] for name in file.files if name.startswith(prefix)
        }
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
      raise WorkdirError(f"{path} is damaged: {error}.") from None


def load_run(workdir: str | os.PathLike[str]) -> Run:
  """Reads and checks a work directory.

  Raises:
    WorkdirError: when there is nothing to report on, saying why.
  """
  path = Path(workdir)
  if not path.is_dir():
    raise WorkdirError(f"There is no directory {path}.")
  if not (path / "results.json").exists():
    if (path / "metrics.jsonl").exists():
      raise WorkdirError(
        f"The run in {path} is not finished: it has metrics.jsonl but no "
        "results.json yet; let it end, or repeat its command to continue it."
      )
    raise WorkdirError(
      f"{path} has no results.json: it is not the work directory of a run."
    )
  results = _read_json(path / "results.json")
  problem = _mismatch(results, _RESULTS, "") or _contradiction(results)
  if problem:
    raise WorkdirError(
      f"{path / 'results.json'} is not a results file: {problem}."
    )
  config = path / "config.json"
  return Run(path, _read_json(config) if config.exists() else {}, results)


def labels(runs: Sequence[Run]) -> list[str]:
  """What tells runs apart: the parts of their titles in which they differ.

  Where titles leave a doubt, the settings in which runs differ are added, and
  where there is still one, the directory's name.
  """
  if len(runs) == 1:
    return [runs[0].results["title"]]
  parts = [run.results["title"].split(" · ") for run in runs]
  if len({len(p) for p in parts}) == 1:
    differs = [len(set(column)) > 1 for column in zip(*parts, strict=True)]
    parts = [list(itertools.compress(p, differs)) for p in parts]
  if len(set(map(tuple, parts))) < len(parts):
    parts = [p + s for p, s in zip(parts, _settings(runs), strict=True)]
  names = [" · ".join(p) for p in parts]
  return [
    f"{name} ({run.path.resolve().name})".strip()
    if names.count(name) > 1
    else name
    for name, run in zip(names, runs, strict=True)
  ]


def _settings(runs: Sequence[Run]) -> list[list[str]]:
  """The settings that differ between runs and are not part of titles."""
  settings = [run.config.get("settings", {}) for run in runs]
  titled = {"dataset", "method", "exemplars", "memory", "seeds"}
  names = dict.fromkeys(itertools.chain.from_iterable(settings))

  def word(name: str, value: Any) -> str:
    if isinstance(value, bool):
      return name if value else f"no {name}"
    return f"{name} {value}"

  return [
    [
      word(name, own.get(name))
      for name in names
      if name not in titled
      and any(own.get(name) != other.get(name) for other in settings)
    ]
    for own in settings
  ]


def common_title(runs: Sequence[Run]) -> str:
  """The parts that all titles share."""
  first, *others = (run.results["title"].split(" · ") for run in runs)
  return " · ".join(p for p in first if all(p in other for other in others))


def _read_json(path: Path) -> dict[str, Any]:
  try:
    value = json.loads(path.read_text(encoding="utf-8"))
  except (OSError, ValueError) as error:
    raise WorkdirError(f"{path} cannot be read: {error}.") from None
  if not isinstance(value, dict):
    raise WorkdirError(f"{path} cannot be read: it is not a JSON object.")
  return value


def _contradiction(results: dict[str, Any]) -> str:
  """The first disagreement between parts of results.json, or ""."""
  phases = len(results["classes_per_phase"])
  if sum(results["classes_per_phase"]) != len(results["class_names"]):
    return "class_names and classes_per_phase disagree"
  if results["readout"] not in results["summary"]:
    return "summary lacks the reported read-out"
  for name, summary in results["summary"].items():
    problem = _mismatch(summary, _SUMMARY, f"summary.{name}")
    if problem:
      return problem
    if len(summary["per_phase"]) != phases:
      return f"summary.{name}.per_phase does not have {phases} entries"
    for run in results["runs"]:
      if len(run["phases"]) != phases:
        return f"seed {run['seed']} does not have {phases} phases"
      parts = [run["average"], run["forgetting"]]
      parts += [phase["accuracy"] for phase in run["phases"]]
      if not all(isinstance(part.get(name), _NUMBER) for part in parts):
        return f"seed {run['seed']} lacks numbers for {name}"
      groups = [phase["by_group"].get(name, ()) for phase in run["phases"]]
      if list(map(len, groups)) != list(range(1, phases + 1)):
        return f"seed {run['seed']} lacks class groups for {name}"
  return ""


def _mismatch(value: Any, shape: Any, where: str) -> str:
  """The first place where value does not have the shape, or ""."""
  if isinstance(shape, list):
    if not isinstance(value, list) or not value:
      return f"{where} should be a list with at least one entry"
    found = (
      _mismatch(v, shape[0], f"{where}[{i}]") for i, v in enumerate(value)
    )
  elif isinstance(shape, dict):
    if not isinstance(value, dict):
      return f"{where or 'it'} should be an object"
    lacking = [key for key in shape if key not in value]
    if lacking:
      return f"{where + ' ' if where else ''}lacks {lacking[0]}"
    found = (
      _mismatch(value[k], s, f"{where}.{k}" if where else k)
      for k, s in shape.items()
    )
  else:
    found = () if isinstance(value, shape) else (f"{where} has a wrong type",)
  return next(filter(None, found), "")
