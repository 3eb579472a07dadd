"""Presets of a learner do what the command line's of the same names do."""

import numpy as np
import pytest

from experiments import presets
from mnemonics_jax import Learner, UserError, memory, registry
from mnemonics_jax.learner.presets import fields, policy

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 8, 8, 3), np.uint8)


def config(**settings):
  """What a learner would do with three new classes."""
  learner = Learner("resnet8", **settings)
  network = learner._network(IMAGES)
  return learner._config(network, (3,), np.repeat(np.arange(3), 2), None)


def test_the_papers_preset_follows_the_reference_code():
  lucir = config(preset="paper")
  assert (lucir.method.reduction, lucir.method.head.sigma) == ("mean", 1.0)
  assert not lucir.network.module.last_relu
  assert config(preset="paper", method="lwf").network.module.last_relu
  assert not config(preset="short", method="lwf").network.module.last_relu
  assert config(preset="short").method.reduction == "sum"


def test_its_stages_are_those_of_learned_exemplars():
  stages = lambda c: (c.adjust, c.transfer, c.finetune, c.validate_on)
  assert stages(config(preset="paper")) == (True, "in_out", "all", "new")
  chosen = config(preset="paper", exemplars="herding")
  assert stages(chosen) == (False, "none", "none", "new")


def test_a_method_brings_its_own_fine_tune():
  assert config(method="e2e").finetune == "all"
  assert config(method="e2e", finetune="none").finetune == "none"


@pytest.mark.parametrize("preset", registry.PRESETS)
def test_schedules_are_those_for_cifar(preset):
  ours, flags = (
    fields(preset, "mnemonics", "lucir"),
    presets.of("cifar100")[preset],
  )
  assert ours["base"].epochs == flags["base_epochs"]
  assert ours["train"].epochs == flags["epochs"]
  assert ours["balance"].epochs == flags["finetune_epochs"]
  for schedule in (ours["base"], ours["train"]):
    assert schedule.curve == flags.get("curve", "steps")
  rate = flags.get("learning_rate", 0.1)
  assert ours["train"].learning_rate == rate
  assert ours["base"].learning_rate == flags.get("base_learning_rate", rate)
  assert ours["balance"].curve == "steps"
  assert ours["exemplars"] == flags.get("exemplars", "mnemonics")
  assert policy(preset, None, None, (32, 32, 3)) == (
    memory.parse(flags.get("memory", "per_class:20")),
    memory.parse_codec(flags.get("codec", "raw")),
  )


def test_choices_of_a_phase_are_checked_at_once():
  with pytest.raises(UserError, match="`validate_on=foo`"):
    Learner(validate_on="foo")
