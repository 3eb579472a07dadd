"""What is known, and the same with more room."""

import jax
import numpy as np
import pytest

from mnemonics_jax.learner import known as known_lib
from mnemonics_jax.types import Memory, PhaseState


@pytest.mark.parametrize(
  "needed, room, expected", [(1, 4, 4), (4, 4, 4), (5, 4, 8), (33, 8, 64)]
)
def test_room_doubles_until_it_is_enough(needed, room, expected):
  assert known_lib.room_for(needed, room) == expected


def state(classes, slots, seed=0):
  """A head row and a memory for each class."""
  rng = np.random.default_rng(seed)
  images = rng.integers(1, 256, (classes, slots, 2, 2, 3)).astype(np.uint8)
  variables = {
    "params": {
      "backbone": {"kernel": np.ones((3, 3))},
      "head": {"rows": np.arange(10.0)[:classes] + 10 * seed},
    }
  }
  counts = np.full(classes, slots)
  return PhaseState(variables, Memory(images, counts), jax.random.key(0), 1, 2)


def test_what_is_grown_begins_with_what_was_there():
  have, fresh = state(4, 2, seed=1), state(8, 3)
  grown = known_lib.grown(have, fresh)
  rows = grown.variables["params"]["head"]["rows"]
  # The rows that were there, then those of a longer head that has seen nothing.
  assert rows.tolist() == [10, 11, 12, 13, 4, 5, 6, 7]
  images, counts = grown.memory
  assert images.shape == (8, 3, 2, 2, 3)
  np.testing.assert_array_equal(images[:4, :2], have.memory.images)
  assert not images[4:].any() and not images[:, 2:].any()
  assert counts.tolist() == [2, 2, 2, 2, 0, 0, 0, 0]
  assert (grown.phase, grown.classes_seen) == (1, 2)


def test_what_has_the_room_stays_itself():
  have = state(4, 2)
  assert known_lib.grown(have, state(4, 2, seed=1)) is have
  # Slots never become fewer.
  assert known_lib.grown(have, state(4, 1, seed=1)) is have


def test_exemplars_come_with_their_names():
  have = state(3, 2)
  have = have._replace(memory=have.memory._replace(counts=np.array([2, 1, 0])))
  known = known_lib.Known(have, ("cat", 7), (1, 1), network=None)
  images, names = known.exemplars
  assert names == ("cat", "cat", 7)
  np.testing.assert_array_equal(images[2], have.memory.images[1, 0])
