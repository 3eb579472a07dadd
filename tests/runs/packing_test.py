"""States survive being made plain arrays."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mnemonics_jax import memory
from mnemonics_jax.runs import packing
from mnemonics_jax.types import PhaseState


@pytest.mark.parametrize(
  ("codec", "arrays"),
  [
    (memory.Raw(), {"images", "counts"}),  # As all versions have written it.
    (memory.Jpeg(50), {"codes", "sizes", "counts"}),
  ],
)
def test_a_state_comes_back(codec, arrays):
  rng = np.random.default_rng(0)
  images = rng.integers(1, 256, (3, 4, 4, 3), np.uint8)
  blank = memory.empty(3, (4, 4, 3), codec)
  kept = memory.store(blank, images, np.array([0, 0, 1]))
  variables = {"params": {"w": jnp.asarray([0.1, 0.2])}}
  state = PhaseState(variables, kept, jax.random.key(5), 1, 2)
  tree = packing.pack_state(state)
  assert set(tree["memory"]) == arrays
  found = packing.unpack_state(blank, tree, {"phase": 1, "classes_seen": 2})
  np.testing.assert_array_equal(found.memory.images, kept.images)
  np.testing.assert_array_equal(found.memory.codes.data, kept.codes.data)
  np.testing.assert_array_equal(found.memory.counts, [2, 1, 0])
  assert (found.phase, found.classes_seen) == (1, 2)
  w = found.variables["params"]["w"]
  assert isinstance(w, jax.Array) and w.tolist() == [
    np.float32(0.1),
    np.float32(0.2),
  ]
  assert jax.random.key_data(found.key).tolist() == [0, 5]


def test_leaves_come_back_as_what_they_were():
  leaves = [jax.random.key(9), jnp.arange(2.0), np.arange(3), 4, 0.25]
  stored = packing.to_host(leaves)
  assert all(type(leaf) is np.ndarray for leaf in stored)
  like = [jax.random.key(0), jnp.zeros(2), np.zeros(3, int), 0, 0.0]
  pairs = zip(stored, like, strict=True)
  found = [packing.like_leaf(*pair) for pair in pairs]
  assert jax.random.key_data(found[0]).tolist() == [0, 9]
  assert isinstance(found[1], jax.Array) and found[1].tolist() == [0, 1]
  assert isinstance(found[2], np.ndarray) and found[2].tolist() == [0, 1, 2]
  assert found[3:] == [4, 0.25]
  assert [type(leaf) for leaf in found[3:]] == [int, float]
