"""Names are listed once, and stand for what the library has."""

import os.path

import numpy as np
import pytest

from mnemonics_jax import exemplars, registry
from mnemonics_jax.nn import transfer
from mnemonics_jax.nn.augment import AUGMENTATIONS
from mnemonics_jax.phase import config


def test_an_object_is_imported_when_it_is_asked_for():
  entries = {
    "parts": registry.Entry("os.path:join", "joins names"),
    "none": registry.Entry("no_such_module:thing", "is nowhere"),
  }
  objects = registry.Objects(entries)
  assert list(objects) == ["parts", "none"] and len(objects) == 2
  assert objects["parts"]("a", "b") == os.path.join("a", "b")
  assert objects.get("other") is None
  with pytest.raises(ModuleNotFoundError, match="no_such_module"):
    objects["none"]
  entries["more"] = registry.Entry("os:sep", "a sign")  # At run time.
  assert "more" in objects


def test_curves_are_those_of_schedules():
  assert set(registry.CURVES) == {"steps", *config._CURVES}


def test_weight_transfers_can_be_made():
  backbone = {"Conv_0": {"kernel": np.ones((3, 3, 4, 8))}}
  for kind in registry.TRANSFERS.keys() - {"none"}:
    assert transfer.init(backbone, kind)["Conv_0"]["shift"].shape == (8,)


def test_learned_exemplars_begin_with_chosen_ones():
  learned = {"mnemonics", "selected"}
  assert set(registry.INIT_EXEMPLARS) == set(registry.EXEMPLARS) - learned
  for name in registry.EXEMPLARS:
    assert issubclass(exemplars.STRATEGIES[name], exemplars.Strategy)


@pytest.mark.parametrize("name", registry.AUGMENTATIONS)
def test_augmentations_are_values(name):
  """Hashable and equal when made again: compiled programs are shared."""
  transform = AUGMENTATIONS[name]
  assert hash(transform) == hash(type(transform)(**vars(transform)))


def test_choices_are_names_with_their_words():
  said = registry.choices(registry.METHODS)
  assert all(f"{name} (" in said for name in registry.METHODS)
  assert registry.choices({"a": "one", "b": "two"}) == "a: one; b: two"
