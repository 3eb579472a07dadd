"""Several runs beside each other: which are compared, joined, and their labels."""

from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any, NamedTuple

from mnemonics_jax.data.sources import title_of
from mnemonics_jax.report.words import listed, shorten
from mnemonics_jax.runs import results as results_lib
from mnemonics_jax.runs.results import Run


class Group(NamedTuple):
  """Runs whose accuracies are about the same test images.

  Attributes:
    title: the data in a few words, different for every group.
    runs: at least one.
  """

  title: str
  runs: list[Run]


def by_data(runs: Sequence[Run]) -> list[Group]:
  """Runs in groups that may be compared, in their order.

  A run that has not learned all classes, or not yet, belongs to those that
  began with the same ones.
  """
  groups: list[list[Run]] = []
  for run in runs:
    for group in groups:
      if all(_same_data(run, other) for other in group):
        group.append(run)
        break
    else:
      groups.append([run])
  titles = [_titles(group) for group in groups]
  # The shortest words that tell all groups apart.
  for words in zip(*titles, strict=True):
    if len(set(words)) == len(words):
      break
  else:
    words = [f"{title[0]}, data {i}" for i, title in enumerate(titles, 1)]
  return [Group(*pair) for pair in zip(words, groups, strict=True)]


def _same_data(run: Run, other: Run) -> bool:
  """Whether every number of classes seen means the same test images."""
  names, others = (r.results["class_names"] for r in (run, other))
  both = min(len(names), len(others))
  checksums = {run.config.get("data"), other.config.get("data")} - {None}
  return (
    run.results["dataset"] == other.results["dataset"]
    and names[:both] == others[:both]
    and len(checksums) < 2
  )


def _titles(group: Sequence[Run]) -> list[str]:
  """What the data of a group may be called, ever longer."""
  results = max((r.results for r in group), key=lambda r: len(r["class_names"]))
  names = [shorten(name) for name in results["class_names"]]
  title = title_of(results["dataset"])
  counted = f"{title}, {len(names)} class{'es' * (len(names) > 1)}"
  return [title, counted, f"{counted}: {listed(names, most=3)}"]


def merge_seeds(runs: Sequence[Run]) -> list[Run]:
  """Joins runs with equal settings and different seeds, in their order.

  A joined run has the first one's directory, and that one's seed comes first.
  Runs with a seed in common stay apart: they are repetitions to be compared.
  """
  merged: list[Run] = []
  for run in runs:
    for index, other in enumerate(merged):
      if _same_but_seeds(run, other):
        merged[index] = _join(other, run)
        break
    else:
      merged.append(run)
  return merged


def _same_but_seeds(run: Run, other: Run) -> bool:
  settings, others = (
    {**r.config.get("settings", {}), "seeds": None} for r in (run, other)
  )
  return (
    settings == others
    and len(settings) > 1
    and run.results["title"] == other.results["title"]
    and run.results["class_names"] == other.results["class_names"]
    and run.results["classes_per_phase"] == other.results["classes_per_phase"]
    and run.results["summary"].keys() == other.results["summary"].keys()
    and not set(run.results["seeds"]) & set(other.results["seeds"])
  )


def _join(first: Run, second: Run) -> Run:
  records = [*first.results["runs"], *second.results["runs"]]
  return dataclasses.replace(
    first,
    results={
      **first.results,
      "seeds": [*first.results["seeds"], *second.results["seeds"]],
      "runs": records,
      "summary": results_lib.summary(records),
    },
  )


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
