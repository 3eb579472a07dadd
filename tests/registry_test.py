"""Names are listed once, and stand for what the library has."""

import numpy as np
import pytest

from mnemonics_jax import memory, methods, registry
from mnemonics_jax.nn import augment, networks, transfer
from mnemonics_jax.phase import config

TABLES = {
  "METHODS": methods.METHODS,
  "NETWORKS": networks.NETWORKS,
  "AUGMENTATIONS": augment.AUGMENTATIONS,
  "CODECS": memory.CODECS,
  "CURVES": {"steps", *config._CURVES},
}


@pytest.mark.parametrize("name", TABLES)
def test_names_are_those_of_the_library(name):
  listed, real = set(getattr(registry, name)), set(TABLES[name])
  assert listed == real, (
    f"registry.{name} lacks {sorted(real - listed)} and has"
    f" {sorted(listed - real)} too many"
  )


def test_weight_transfers_can_be_made():
  backbone = {"Conv_0": {"kernel": np.ones((3, 3, 4, 8))}}
  for kind in registry.TRANSFERS.keys() - {"none"}:
    assert transfer.init(backbone, kind)["Conv_0"]["shift"].shape == (8,)


def test_methods_are_reported_by_their_read_out():
  for name, words in registry.METHODS.items():
    method = methods.METHODS[name]
    assert (method.name, method.readout) == (name, words.readout)
    assert words.readout in registry.READOUTS


def test_labels_tell_methods_apart():
  labels = [words.label for words in registry.METHODS.values()]
  assert len(set(labels)) == len(labels)


def test_learned_exemplars_begin_with_chosen_ones():
  learned = {"mnemonics", "selected"}
  assert set(registry.INIT_EXEMPLARS) == set(registry.EXEMPLARS) - learned


def test_methods_networks_and_augmentations_are_values():
  """Hashable and equal when made again: compiled programs are shared."""
  for method in methods.METHODS.values():
    assert hash(method()) == hash(method()) and method() == method()
  for make in networks.NETWORKS.values():
    assert hash(make()) == hash(make()) and make() == make()
  for transform in augment.AUGMENTATIONS.values():
    assert hash(transform) == hash(type(transform)(**vars(transform)))


def test_choices_are_names_with_their_words():
  said = registry.choices(registry.METHODS)
  assert all(f"{name} (" in said for name in methods.METHODS)
  assert registry.choices({"a": "one", "b": "two"}) == "a: one; b: two"
