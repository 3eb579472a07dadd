"""What to call runs beside each other."""

from collections.abc import Sequence
import itertools
from typing import Any

from mnemonics_jax.runs.finished import Run


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


def common_title(runs: Sequence[Run]) -> str:
  """The parts that all titles share."""
  first, *others = (run.results["title"].split(" · ") for run in runs)
  return " · ".join(p for p in first if all(p in other for other in others))


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
      word(name, run.get(name))
      for name in names
      if name not in titled
      and any(run.get(name) != other.get(name) for other in settings)
    ]
    for run in settings
  ]
