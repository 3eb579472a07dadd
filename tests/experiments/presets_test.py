"""Presets are settings, and every data set has the same."""

import dataclasses
from pathlib import Path

import pytest

from experiments.tables import plan as plan_lib
from mnemonics_jax import data, registry
from mnemonics_jax.settings import Settings, presets

FIELDS = {field.name for field in dataclasses.fields(Settings)}


@pytest.mark.parametrize("dataset", data.SOURCES)
def test_every_data_set_has_every_preset(dataset):
  found = presets.of(dataset)
  assert found.keys() == registry.PRESETS.keys()
  for name, values in found.items():
    assert values.keys() <= FIELDS
    Settings(dataset, name, **values)  # Which checks itself.
  epochs = {
    name: Settings(dataset, name, **found[name]).epochs for name in found
  }
  assert epochs["paper"] > epochs["fast"] > epochs["smoke"]
  assert epochs["paper"] > epochs["short"] > epochs["smoke"]


def test_presets_are_those_of_data_sets_that_exist():
  assert presets.PRESETS.keys() - {"learner"} <= data.SOURCES.keys()


@pytest.mark.parametrize(
  "dataset, method",
  [("digits", "lucir"), ("cifar100", "lucir"), ("folder", "icarl")],
)
@pytest.mark.parametrize("preset", ["short", "smoke"])
def test_newcomers_get_what_was_measured_to_be_best(dataset, method, preset):
  settings = Settings(dataset, preset, **presets.of(dataset)[preset])
  assert (settings.method, settings.finetune) == (method, "head")


@pytest.mark.parametrize("preset", ["short", "fast", "best"])
@pytest.mark.parametrize("dataset", ["cifar100", "imagenet", "imagenet_subset"])
def test_exemplars_are_chosen_where_learning_was_not_shown_to_help(
  dataset, preset
):
  """results/studies/components.md; `smoke` shows all stages, digits learning."""
  assert presets.of(dataset)[preset]["exemplars"] == "herding"
  assert "exemplars" not in presets.of(dataset)["smoke"]
  assert "exemplars" not in presets.of("digits")["short"]


def test_exemplars_are_drawn_more_often_only_where_that_was_measured():
  """20 raw images of CIFAR-100; results/studies/drawing.md."""
  often = {
    (dataset, preset)
    for dataset in data.SOURCES
    for preset, values in presets.of(dataset).items()
    if values.get("rehearsal", "once") != "once"
  }
  assert often == {("cifar100", "short")}
  drawn = lambda **given: presets.values("cifar100", "short", given).get(
    "rehearsal"
  )
  assert drawn() == "4"
  assert drawn(codec="jpeg:75") is drawn(memory="total:2000") is None


def test_a_rate_that_is_given_is_that_of_phase_0_too():
  given = {"learning_rate": 0.01}
  assert "base_learning_rate" in presets.values("cifar100", "fast", {})
  assert "base_learning_rate" not in presets.values("cifar100", "fast", given)


@pytest.mark.parametrize(
  "preset, study, name",
  [("best", "best", "best"), ("short", "drawing", "four")],
)
def test_what_is_recommended_is_what_was_measured(preset, study, name):
  path = Path(__file__).parents[2] / f"results/studies/{study}.yaml"
  plan = plan_lib.load(path)
  row = next(row for row in plan.rows if row.name == name)
  given = {**plan.settings, **row.fixed}
  short = presets.values("cifar100", "short", given)
  measured, recommended = (
    dataclasses.asdict(Settings("cifar100", preset, **values))
    for values in (short | given, presets.of("cifar100")[preset])
  )
  assert measured == recommended


def test_others_are_treated_like_cifar():
  assert presets.of("flowers") == presets.of("cifar100")
  assert presets.of("flowers")["fast"]["epochs"] == 10
