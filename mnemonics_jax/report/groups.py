"""Which runs may be compared: those that learn the same data in one order."""

from collections.abc import Sequence
from typing import NamedTuple

from mnemonics_jax.data.sources import title_of
from mnemonics_jax.report.drawing import shorten
from mnemonics_jax.report.words import listed
from mnemonics_jax.runs.finished import Run


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
