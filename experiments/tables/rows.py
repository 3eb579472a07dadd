"""The rows of the paper's tables, and what they set."""

from collections.abc import Mapping, Sequence
import dataclasses
from typing import Any

from experiments.paper import METHODS
from mnemonics_jax import data, registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings, presets
from mnemonics_jax.settings.presets import BASELINE, COMPONENTS

TABLES = ("1", "2", "s1", "s2")
UPPER_BOUND = "joint"


@dataclasses.dataclass(frozen=True)
class Row:
  """A row of a table.

  Attributes:
    name: what --rows calls it.
    label: what the table calls it.
    fixed: settings that make it this row.
    paper: its name in `paper_tables.yaml`, None if the paper does not have it.
    references: names of the rows its paired differences are taken to.
    defaults: settings that a flag may replace, else the paper's.
  """

  name: str
  label: str
  fixed: Mapping[str, Any]
  paper: str | None = None
  references: tuple[str, ...] = ()
  defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def cell(self) -> dict[str, Any]:
    """What the row sets where nothing is reduced."""
    return {**(COMPONENTS if self.defaults else {}), **self.fixed}


def rows(table: str, preset: str) -> list[Row]:
  """All rows of a table of the paper, and those that make it readable.

  The paper fine-tunes the whole network and learns exemplars through it; the
  reduced presets do what works on short schedules: the head only.
  """
  training = dict(COMPONENTS, recipe="paper")
  if preset != "paper":
    training |= dict(finetune="head", recipe="tuned")
  if table == "2":
    return _exemplar_rows(training)
  if table == "s2":
    return _distillation_rows(training)
  return [row for method in METHODS for row in _method_rows(method, training)]


def _exemplar_rows(training: Mapping[str, Any]) -> list[Row]:
  return [
    Row(
      kind + ("_adjust" if adjust else ""),
      f"{kind}, {'adjusted' if adjust else 'not adjusted'}",
      dict(method="lucir", exemplars=kind, adjust=adjust),
      f"{'ours' if kind == 'mnemonics' else kind}_{'adj' if adjust else 'noadj'}",
      () if (kind, adjust) == ("herding", False) else ("herding",),
      training,
    )
    for kind in ("random", "herding", "mnemonics")
    for adjust in (False, True)
  ]


def _distillation_rows(training: Mapping[str, Any]) -> list[Row]:
  learned = dict(method="lucir", exemplars="mnemonics", adjust=True)
  return [
    Row(
      "nodistill", "without distillation", dict(learned, distill=False),
      "without", ("distill",), training
    ),
    Row(
      "distill", "with distillation", dict(learned, distill=True),
      "with", (), training
    ),
  ]  # fmt: skip


def _method_rows(method: str, training: Mapping[str, Any]) -> list[Row]:
  """A baseline, the same with mnemonics' other components, and mnemonics.

  The paper has the first and the last; between them, the second tells what
  weight transfer and fine-tune add, and what learning adds to these.
  """
  label = registry.METHODS[method].label
  equal = f"{method}_equal"
  return [
    Row(method, label, dict(method=method, **BASELINE), label),
    Row(
      equal,
      f"{label}, equal components",
      dict(method=method, exemplars="herding", adjust=False),
      None,
      (method,),
      training,
    ),
    Row(
      f"{method}_mnemonics",
      f"{label} with mnemonics",
      dict(method=method, exemplars="mnemonics", adjust=True),
      f"{label}_ours",
      (method, equal),
      training,
    ),
  ]


def upper_bound() -> Row:
  """Joint training on all data seen so far; only in the paper's figures."""
  fixed = dict(method="joint", distill=True, **BASELINE)
  return Row(UPPER_BOUND, "upper bound (joint training)", fixed)


def pick(available: Sequence[Row], names: Sequence[str] | None) -> list[Row]:
  """The rows named by --rows, in the table's order; None picks all."""
  known = [row.name for row in available]
  if names is None:
    return list(available)
  for name in names:
    if name not in known:
      raise UserError(
        "rows",
        f"`rows={','.join(names)}`: this table has no row {name!r}",
        f"choose from `rows={','.join(known)}`",
      )
  if not names:
    raise UserError(
      "rows", "`rows` is empty", f"choose from `rows={','.join(known)}`"
    )
  return [row for row in available if row.name in names]


def memory(table: str, dataset: str) -> dict[str, str]:
  """The memory of a table where it is not the preset's."""
  if table != "s1":
    return {}
  usual = f"total:{20 * (data.SOURCES[dataset].classes or 0)}"
  return {"memory": presets.TOTALS.get(dataset, usual)}


def settings(
  row: Row,
  *,
  dataset: str,
  preset: str,
  values: Mapping[str, Any],
  given: Mapping[str, Any],
  phases: int,
  seed: int,
) -> Settings:
  """One cell: the preset, the row's defaults, the flags, the row itself.

  Args:
    row: the row.
    dataset: name of the data set.
    preset: name of the preset.
    values: the preset's settings.
    given: settings for which a flag was given.
    phases: N.
    seed: the one seed of this cell.
  """
  cell = dict(dataset=dataset, preset=preset, phases=phases, seeds=(seed,))
  return Settings(**{**values, **row.defaults, **given, **row.fixed, **cell})
