"""Flags and presets: what was typed wins, what was not is the preset's."""

import pytest
from support import command

from experiments import flags as flags_lib
from experiments import folder
from mnemonics_jax import registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import Settings, presets

FLAGS = folder.FLAGS


def settings(dataset="digits", **given):
  values = command.parsed(flags_lib.of_run(dataset), **given)
  return flags_lib.settings(values, dataset)


@pytest.mark.parametrize(
  "flag, names",
  {
    "method": registry.METHODS,
    "exemplars": registry.EXEMPLARS,
    "init_exemplars": registry.INIT_EXEMPLARS,
    "validate_on": registry.VALIDATIONS,
    "transfer": registry.TRANSFERS,
    "finetune": registry.FINETUNES,
    "net": registry.NETWORKS,
    "augment": registry.AUGMENTATIONS,
  }.items(),
)
def test_choices_are_those_of_the_registry(flag, names):
  assert FLAGS[flag].parser.enum_values == list(names)


def test_every_setting_has_a_flag_that_explains_it():
  fields = set(Settings.__dataclass_fields__)
  of_presets = {"milestones", "dataset"}
  for name in fields - of_presets:
    assert len(FLAGS[name].help) >= 8, name


def test_a_flag_wins_over_its_preset():
  smoke = settings(preset="smoke")
  assert (smoke.preset, smoke.epochs, smoke.batch_size) == ("smoke", 2, 64)
  given = settings(preset="smoke", epochs="7", phases="2", seeds="3,1")
  assert (given.epochs, given.batch_size) == (7, 64)
  assert (given.phases, given.seeds) == (2, (3, 1))


def test_the_less_forget_weight_is_that_of_the_data():
  assert settings().less_forget == 5.0
  assert settings("cifar100", preset="paper").less_forget == 5.0
  for preset in presets.of("folder"):
    found = settings("folder", preset=preset)
    assert found.less_forget == 10.0
  assert settings(less_forget="7.5").less_forget == 7.5
  with pytest.raises(UserError, match="`less_forget` has no effect"):
    settings(less_forget="7.5", method="lwf")


def test_a_run_takes_one_number_of_phases():
  with pytest.raises(
    UserError, match="--phases=5,10 cannot be used; give a wh"
  ):
    settings(phases="5,10")


def test_lists_are_of_whole_numbers():
  with pytest.raises(UserError, match="`seeds=1,b` is not a list"):
    settings(seeds="1,b")


def test_the_upper_bound_has_chosen_exemplars():
  assert settings(method="joint").exemplars == "herding"
  assert settings(method="joint", exemplars="random").exemplars == "random"


def test_a_fine_tune_that_belongs_to_a_method_is_its_default():
  assert settings(method="e2e").finetune == "all"
  assert settings(method="e2e", finetune="none").finetune == "none"
  assert settings(method="lwf").finetune == settings().finetune
  # The paper's baselines have none of their own, but this one is the method's.
  chosen = dict(preset="paper", method="e2e", exemplars="herding")
  found = settings(**chosen)
  assert (found.adjust, found.transfer, found.finetune) == (
    False,
    "none",
    "all",
  )
  assert settings(**chosen, finetune="none").finetune == "none"


def test_only_what_was_typed_counts_as_given():
  flags = dict(epochs="3", phases="2", tensorboard="false", preset="fast")
  values = command.parsed(flags_lib.of_run("digits"), **flags)
  assert flags_lib.given(values, Settings) == {"epochs": 3, "phases": 2}
