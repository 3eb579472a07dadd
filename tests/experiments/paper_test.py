"""What may be called the paper's, and what is said of the rest."""

import dataclasses

import pytest
from support import command

from experiments import flags as flags_lib
from experiments.paper import departures
from mnemonics_jax.settings import Settings, presets

PAPER = Settings("cifar100", "paper", **presets.of("cifar100")["paper"])
HERDING = dataclasses.replace(
  PAPER, exemplars="herding", adjust=False, transfer="none", finetune="none"
)
IMAGES = Settings("folder", "paper", **presets.of("folder")["paper"])
SUBSET = Settings(
  "imagenet_subset", "paper", **presets.of("imagenet_subset")["paper"]
)


def given(dataset="cifar100", **flags):
  given = dict(preset="paper", **flags)
  values = command.parsed(flags_lib.of_run("digits"), **given)
  return flags_lib.settings(values, dataset)


def test_the_preset_has_the_papers_stages_for_learned_exemplars():
  stages = lambda s: (s.exemplars, s.adjust, s.transfer, s.finetune)
  complete = ("mnemonics", True, "in_out", "all")
  for dataset in presets.PRESETS:
    assert stages(given(dataset)) == complete
  assert stages(given(exemplars="mnemonics", method="bic")) == complete
  assert stages(given(transfer="none")) == ("mnemonics", True, "none", "all")
  plain = ("herding", False, "none", "none")
  assert stages(given(exemplars="herding")) == plain
  assert stages(given(method="joint")) == plain
  assert stages(given(exemplars="random", adjust="true", finetune="all")) == (
    *("random", True), *("none", "all")
  )  # fmt: skip


@pytest.mark.parametrize(
  "change",
  [
    dict(),
    dict(method="bic", phases=25),
    dict(memory="total:2000"),  # Table S1.
    dict(distill=False),  # Table S2.
    dict(adjust=False),  # Table 2.
    dict(exemplars="random", adjust=False),
    dict(exemplars="herding"),
    dict(base_classes=50, scope="all", meta_epochs=50),
    dict(preset="fast", seeds=(3, 4), remat=True),
  ],
)
def test_cells_of_the_paper_are_its_own(change):
  assert departures(dataclasses.replace(PAPER, **change)) == []


@pytest.mark.parametrize(
  "change",
  [
    dict(method="icarl"),
    dict(memory="total:2000"),
    dict(method="joint", memory="per_class:3"),
    # What has no effect is no departure.
    dict(recipe="tuned", init_exemplars="herding", finetune_epochs=3),
    dict(method="lwf", less_forget=4.0),
  ],
)
def test_so_are_its_baselines(change):
  assert departures(dataclasses.replace(HERDING, **change)) == []


@pytest.mark.parametrize(
  "change, told",
  [
    (dict(epochs=159), ["epochs 159 (paper: 160)"]),
    (dict(recipe="tuned"), ["recipe tuned (paper: paper)"]),
    (dict(meta_epochs=1), ["meta_epochs 1"]),
    (dict(less_forget=4.0), ["less_forget 4.0 (paper: 5.0)"]),
    (dict(memory="per_class:5"), ["memory per_class:5 (paper: per_class:20)"]),
    (dict(reference_code=False), ["reference_code False (paper: True)"]),
    (dict(base_classes=40), ["base_classes 40"]),
    (dict(phases=7), ["phases 7 (paper: 5, 10, 25)"]),
    (
      dict(method="lwf", distill=False), ["distill False (paper: True)"],
    ),
    (
      dict(method="icarl_bce"),
      ["method icarl_bce (paper: lwf, icarl, bic, lucir)"],
    ),
    (
      dict(adjust=False, transfer="none", finetune="none"),
      ["transfer none (paper: in_out)", "finetune none (paper: all)"],
    ),
    (
      dict(method="bic", adjust=False),
      ["adjust False (paper: True)"],
    ),
  ],
)  # fmt: skip
def test_a_departure_is_told_in_words(change, told):
  """Which settings are compared, the next test says."""
  assert departures(dataclasses.replace(PAPER, **change)) == told


def test_every_setting_that_could_change_a_number_is_compared():
  free = {"dataset", "preset", "seeds", "data", "val_fraction"}
  free |= {"remat", "stream"}
  for field in dataclasses.fields(Settings):
    if field.name in free | {"method", "exemplars", "memory", "base_model"}:
      continue
    value = getattr(PAPER, field.name)
    match value:
      case bool():
        # Without distillation it is a cell of Table S2, and without adjustment
        # one of Table 2; this method has neither.
        other = not value
      case int() | float():
        other = value + 1
      case tuple():
        other = (*value, 0.9)
      case None:
        words = {"scope": "head", "validate_on": "all", "tuning_fraction": 0.5}
        other = words.get(field.name, 1)
      case _:
        others = field.metadata["choices"] or ("jpeg:75", "4")
        other = next(o for o in others if o not in (value, "mnemonics"))
        other = {"rehearsal": "4"}.get(field.name, other)
    changed = dataclasses.replace(PAPER, method="bic", **{field.name: other})
    if field.name in changed.idle:
      continue
    found = departures(changed)
    assert [text.split()[0] for text in found] == [field.name]


def test_a_row_of_a_table_is_compared_with_its_own_cell():
  # Beside a number of Table 1, the budget of Table S1 is a departure...
  cell = dict(exemplars="mnemonics", adjust=True, memory="per_class:20")
  total = dataclasses.replace(PAPER, memory="total:2000")
  told = "memory total:2000 (paper: per_class:20)"
  assert departures(total, cell) == [told]
  # ... and what makes a row is none, even where the paper has no such row.
  equal = dataclasses.replace(
    HERDING, method="bic", transfer="in_out", finetune="all"
  )
  row = dict(method="bic", exemplars="herding", adjust=False)
  assert departures(equal, row) == []
  assert departures(equal) != []


def test_image_folders_are_compared_with_imagenet():
  assert departures(IMAGES) == []
  assert departures(dataclasses.replace(IMAGES, memory="total:20000")) == []
  small = dataclasses.replace(IMAGES, memory="per_class:10", image_size=64)
  assert departures(small) == [
    "memory per_class:10 (paper: per_class:20)", "image_size 64 (paper: 224)"
  ]  # fmt: skip


def test_imagenet_has_cells_of_its_own():
  whole = dataclasses.replace(SUBSET, dataset="imagenet")
  for settings, base, total in ((SUBSET, 50, 2000), (whole, 500, 20_000)):
    for change in (
      dict(),
      dict(phases=25, base_classes=base),
      dict(memory=f"total:{total}"),
      dict(scope="all", meta_epochs=50, validate_on="new"),
    ):
      assert departures(dataclasses.replace(settings, **change)) == []
    told = departures(dataclasses.replace(settings, memory="total:200"))
    assert told == ["memory total:200 (paper: per_class:20)"]
  # The paper's schedule, to the letter.
  schedule = dict(
    net="resnet18", epochs=90, base_epochs=90, learning_rate=0.1,
    batch_size=128, weight_decay=5e-4, memory="per_class:20",
    less_forget=10.0, image_size=224,
  )  # fmt: skip
  assert schedule.items() <= dataclasses.asdict(SUBSET).items()
  from mnemonics_jax.phase.config import milestones_at

  assert milestones_at(SUBSET.milestones, SUBSET.epochs) == (30, 60)


def test_other_data_are_never_the_papers():
  other = dataclasses.replace(PAPER, dataset="digits")
  assert departures(other) == ["dataset digits (paper: CIFAR-100 and ImageNet)"]
