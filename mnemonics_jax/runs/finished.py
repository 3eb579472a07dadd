"""A run as it lies on disk, finished or as far as it has come."""

import dataclasses
import functools
from pathlib import Path
from typing import Any

import numpy as np

from mnemonics_jax.runs import layout, records
from mnemonics_jax.runs.layout import AnyPath, WorkdirError
from mnemonics_jax.runs.metrics_log import read_metrics
from mnemonics_jax.runs.phase_arrays import read_phase_arrays


@dataclasses.dataclass(frozen=True)
class Run:
  """A finished run; `load_run` makes one from a work directory.

  >>> run = load_run("finished_run")
  >>> run.results["seeds"], run.durations
  ([0, 1], [7.5, 7.5])
  >>> run.arrays(seed=0, phase=2, prefix="memory")["memory/counts"].tolist()
  [4, 4, 4, 4, 4]

  Attributes:
    path: the work directory.
    config: config.json, empty when there is none.
    results: results.json; of an unfinished run what it would be so far.
    problems: a sentence for everything that was to be read and is damaged.
  """

  path: Path
  config: dict[str, Any]
  results: dict[str, Any]
  problems: list[str] = dataclasses.field(default_factory=list, compare=False)

  @property
  def phases_left(self) -> int:
    """How many phases there will be beyond those in `results`."""
    planned = self.config.get("results", {}).get("classes_per_phase", [])
    return max(len(planned) - len(self.results["classes_per_phase"]), 0)

  @functools.cached_property
  def metrics(self) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl; bad ones are among `problems`."""
    found: list[str] = []
    lines = read_metrics(self.path, found)
    there = {
      (line["seed"], line["phase"])
      for line in lines
      if line.get("kind") == "phase"
    }
    measured = [
      (run["seed"], phase["phase"])
      for run in self.results["runs"]
      for phase in run["phases"]
    ]
    if missing := len(set(measured) - there):
      found.append(
        f"{layout.metrics_path(self.path)} lacks {missing} of {len(measured)}"
        " phases: curves and durations are incomplete."
      )
    self._add(found)
    return lines

  def _add(self, problems):
    self.problems.extend(one for one in problems if one not in self.problems)

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
    """What a phase saved under names with a prefix; empty when nothing.

    A damaged file is among `problems`, and as good as none.
    """
    try:
      return read_phase_arrays(self.path, seed, phase, prefix)
    except WorkdirError as error:
      self._add([f"{error.problem}, and pictures of it are left out."])
      return {}


def load_run(workdir: AnyPath, *, unfinished: bool = False) -> Run:
  """Reads and checks the work directory of a run.

  >>> results = load_run("finished_run").results
  >>> results["title"], results["classes_per_phase"]
  ('digits · lucir · herding · per_class:4', [3, 1, 1])
  >>> load_run("no_run")
  Traceback (most recent call last):
  mnemonics_jax.runs.layout.WorkdirError: There is no directory no_run; name the work directory of a finished run.

  Args:
    workdir: where it is.
    unfinished: whether a run that has not ended will do, as far as it has come.

  Raises:
    WorkdirError: when there is nothing to report on, saying why.
  """
  path = Path(workdir)
  if not path.is_dir():
    raise WorkdirError(
      "workdir",
      f"There is no directory {path}",
      "name the work directory of a finished run",
    )
  name = layout.results_path(path).name
  if not layout.results_path(path).exists():
    if unfinished and (found := _unfinished(path)):
      return found
    log = layout.metrics_path(path)
    if log.exists():
      raise WorkdirError(
        name,
        f"The run in {path} is not finished: it has {log.name} but no {name} yet",
        "let it end, or repeat its command to continue it",
      )
    raise WorkdirError(
      name,
      f"{path} has no {name}: it is not the work directory of a run",
      "name one in which a run has finished",
    )
  # First the configuration, which knows if the rest can be understood.
  config = layout.read_config(path)
  return Run(path, config, layout.read_results(path))


def _unfinished(path):
  """What there is of a run, None before the end of its first phase."""
  config = layout.read_config(path)
  if "results" not in config:
    return None
  problems: list[str] = []
  results = records.unfinished(config["results"], read_metrics(path, problems))
  return None if results is None else Run(path, config, results, problems)
