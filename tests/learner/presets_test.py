"""Presets of a learner do what the command line's of the same names do."""

import dataclasses

import numpy as np
import pytest
from support import tiny

from mnemonics_jax import Learner, UserError, registry
from mnemonics_jax.identity import identity
from mnemonics_jax.methods import LwF
from mnemonics_jax.phase import Schedule
from mnemonics_jax.settings import resolve
from mnemonics_jax.settings.build import build

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
def test_a_learner_does_what_the_command_of_the_same_preset_does(preset):
  """With rates and epochs for CIFAR-100, and exemplars drawn once an epoch."""
  same_memory = {"memory": "per_class:20"}
  given = {"net": "resnet8", "rehearsal": "once", "phases": 3, **same_memory}
  run = resolve("cifar100", preset, given)
  theirs, _ = build(run, tiny.dataset(classes=6, train=60))
  ours = config(preset=preset, **same_memory)
  same = {
    field.name: getattr(ours, field.name) == getattr(theirs, field.name)
    for field in dataclasses.fields(ours)
  }
  for name in ("memory", "shape", "network"):  # They depend on the images.
    same.pop(name)
  relu = lambda config: config.network.module.last_relu
  assert relu(ours) == relu(theirs)
  assert all(same.values()), same
  assert identity(ours.base) == identity(theirs.base)


def test_single_settings_are_keywords():
  ours = config(epochs=3, learning_rate=0.2, less_forget=7.0, max_change=4)
  assert (ours.train.epochs, ours.train.learning_rate) == (3, 0.2)
  assert ours.base.learning_rate == 0.2
  assert ours.method.less_forget_base == 7.0
  assert ours.bilevel.max_change == 4


def test_a_setting_beside_a_value_that_has_its_own_is_refused():
  with pytest.raises(UserError, match="`epochs` has no effect with a value"):
    Learner(epochs=3, train=Schedule(2))
  Learner(batch_size=16, train=Schedule(2))  # It is that of phase 0, too.
  with pytest.raises(UserError, match="`distill` has no effect with a value"):
    Learner(distill=False, method=LwF())


def test_a_preset_keeps_as_many_raw_images_of_every_size():
  learner = Learner(preset="best")
  assert learner._policy((32, 32, 3))[0].bytes == 61440
  assert learner._policy((64, 64, 3))[0].bytes == 245760
  assert learner._policy((28, 20, 1))[0].bytes == 20 * 28 * 20


def test_choices_of_a_phase_are_checked_at_once():
  with pytest.raises(UserError, match="`validate_on=foo`"):
    Learner(validate_on="foo")
