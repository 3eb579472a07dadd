"""A learner's state, in a head of more or fewer rows."""

import jax
import numpy as np
import pytest

from mnemonics_jax import memory
from mnemonics_jax.learner import known as known_lib
from mnemonics_jax.types import PhaseState


@pytest.mark.parametrize(
  "classes, room", [(1, 8), (8, 8), (9, 16), (16, 16), (33, 64)]
)
def test_room_depends_on_the_number_of_classes_alone(classes, room):
  assert known_lib.room_for(classes) == room


def state(classes, each, seed=0, codec=memory.Raw()):
  """A head row and some exemplars of each class."""
  rng = np.random.default_rng(seed)
  images = rng.integers(1, 256, (classes * each, 8, 8, 3)).astype(np.uint8)
  variables = {
    "params": {
      "backbone": {"kernel": np.ones((3, 3))},
      "head": {"rows": np.arange(10.0)[:classes] + 10 * seed},
    }
  }
  kept = memory.store(
    memory.empty(classes, (8, 8, 3), codec),
    images,
    np.repeat(np.arange(classes), each),
  )
  return PhaseState(variables, kept, jax.random.key(0), 1, 2)


@pytest.mark.parametrize("codec", [memory.Raw(), memory.Jpeg(50)])
def test_what_is_grown_begins_with_what_was_there(codec):
  have, fresh = state(4, 2, seed=1, codec=codec), state(8, 0, codec=codec)
  grown = known_lib.resized(have, fresh)
  rows = grown.variables["params"]["head"]["rows"]
  # The rows that were there, then those of a longer head that has seen nothing.
  assert rows.tolist() == [10, 11, 12, 13, 4, 5, 6, 7]
  np.testing.assert_array_equal(grown.memory.codes.data, have.memory.codes.data)
  assert grown.memory.counts.tolist() == [2, 2, 2, 2, 0, 0, 0, 0]
  assert (grown.phase, grown.classes_seen) == (1, 2)


def test_rows_of_no_class_may_be_left_out():
  have = state(4, 2, seed=1)
  longer = known_lib.resized(have, state(8, 0))
  again = known_lib.resized(longer, state(4, 0))
  assert again.variables["params"]["head"]["rows"].tolist() == [10, 11, 12, 13]
  assert again.memory == have.memory
  assert (
    known_lib.resized(have, state(4, 0, seed=2)) is have
  )  # It has the room.


def test_another_codec_takes_over_what_there_is():
  have = state(2, 1, codec=memory.Jpeg(50))
  grown = known_lib.resized(have, state(4, 0))
  assert grown.memory.codec == memory.Raw()
  assert grown.memory.counts.tolist() == [1, 1, 0, 0]
  np.testing.assert_array_equal(grown.memory.images, have.memory.images)


def test_exemplars_come_with_their_names():
  have = state(2, 2)
  known = known_lib.Known(have, ("cat", 7), (1, 1), network=None)
  images, names = known.exemplars
  assert names == ("cat", "cat", 7, 7)
  np.testing.assert_array_equal(images, have.memory.images)
