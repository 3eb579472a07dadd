"""Randomness is a function of the seed, the phase and the purpose."""

import itertools

import jax
import numpy as np
import pytest

from mnemonics_jax.phase.context import Keys

PURPOSES = ("train", "holdout", "select", "exemplars", "adjust", "discard",
            "finetune")  # fmt: skip


def _bits(seed, phase, purpose):
  key = Keys(jax.random.key(seed), phase)(purpose)
  return tuple(jax.random.key_data(key).tolist())


def test_no_two_purposes_phases_or_seeds_share_a_key():
  places = list(itertools.product((0, 1), (0, 1, 2), PURPOSES))
  assert len({_bits(*place) for place in places}) == len(places)


def test_keys_are_the_root_with_phase_and_purpose_folded_in():
  """Written down, because other numbers would come from any other rule."""
  root = jax.random.key(3)
  for number, purpose in enumerate(PURPOSES):
    expected = jax.random.fold_in(jax.random.fold_in(root, 2), number)
    assert Keys(root, 2)(purpose) == expected


def test_the_host_draws_from_the_same_key():
  keys = Keys(jax.random.key(0), 1)
  bits = np.asarray(jax.random.key_data(keys("select")))
  expected = np.random.default_rng(bits).permutation(50)
  np.testing.assert_array_equal(keys.numpy("select").permutation(50), expected)
  assert (keys.numpy("discard").permutation(50) != expected).any()


def test_a_purpose_nobody_knows_is_an_error():
  with pytest.raises(ValueError):
    Keys(jax.random.key(0), 0)("luck")
