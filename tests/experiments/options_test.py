"""Flags and presets: what was typed wins, what was not is the preset's."""

from absl.testing import flagsaver
import pytest

from experiments import folder, options
from mnemonics_jax import registry
from mnemonics_jax.errors import UserError
from mnemonics_jax.settings import presets

FLAGS = folder.FLAGS


def settings(dataset="digits", **given):
  with flagsaver.as_parsed(**given):
    return options.settings_from_flags(dataset)


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
  fields = set(options.Settings.__dataclass_fields__)
  of_presets = {"milestones"}
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
  with pytest.raises(UserError, match=r"`phases=5,10` is not one number"):
    settings(phases="5,10")


@pytest.mark.parametrize("flag", ["phases", "seeds"])
def test_lists_are_of_whole_numbers(flag):
  with pytest.raises(UserError, match=f"`{flag}=1,b` is not a list"):
    settings(**{flag: "1,b"})


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
  with flagsaver.as_parsed(epochs="3", phases="2", tensorboard="false"):
    assert options.given_settings() == {"epochs": 3, "phases": (2,)}
