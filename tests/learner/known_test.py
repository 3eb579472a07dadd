"""A learner's state, in a head of more or fewer rows, and what it answers."""

import jax
import numpy as np
import pytest
from support import compilations
from support.learners import learn, make
from support.saved_learner import images, pictures

from mnemonics_jax import memory, methods
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


# A learner is asked about images: read-outs by hand.


def softmax(x):
  x = np.exp(x - x.max(-1, keepdims=True))
  return x / x.sum(-1, keepdims=True)


def features_by_hand(known, shown):
  dense = known.state.variables["params"]["backbone"]["Dense_0"]
  x = shown.reshape(len(shown), -1) / 255 - 0.5
  return x @ np.asarray(dense["kernel"]) + np.asarray(dense["bias"])


def normal(x):
  return x / np.linalg.norm(x, axis=-1, keepdims=True)


def test_read_outs_by_hand(learned):
  learner, known = learned
  shown, _ = pictures(cat=3, hen=3, bee=3)
  features = features_by_hand(known, shown)
  np.testing.assert_allclose(
    learner.features(known, shown), features, rtol=1e-3, atol=1e-4
  )
  head = known.state.variables["params"]["head"]
  cosines = normal(features) @ normal(np.asarray(head["weight"])[:9]).T
  likely = softmax(float(head["sigma"]) * cosines)
  np.testing.assert_allclose(
    learner.predict_proba(known, shown), likely, atol=1e-4
  )
  named = [known.names[i] for i in likely.argmax(-1)]
  assert learner.predict(known, shown).tolist() == named

  kept, names = known.exemplars
  own = normal(features_by_hand(known, kept))
  of = lambda name: own[[n == name for n in names]].mean(0)
  means = normal(np.stack([of(name) for name in known.names]))
  cosines = normal(features) @ means.T
  np.testing.assert_allclose(
    learner.predict_proba(known, shown, readout="nme"),
    softmax(10 * cosines),
    atol=1e-4,
  )
  named = [known.names[i] for i in cosines.argmax(-1)]
  assert learner.predict(known, shown, readout="nme").tolist() == named


def test_close_scores_are_not_rounded_away():
  """Of two nearly certain classes the one with the higher logit is named."""
  learner = make(method=methods.LwF())
  known = learn(learner, None, "cat dog")
  head = {
    "weight": np.zeros((4, 8), np.float32),
    "bias": np.array([8.0, 8.0 + 1e-6, 0, 0], np.float32),
  }
  params = known.state.variables["params"] | {"head": head}
  state = known.state._replace(
    variables=known.state.variables | {"params": params}
  )
  shown = images(2, 3)
  named = learner.predict(known._replace(state=state), shown, readout="head")
  assert named.tolist() == ["dog", "dog"]


def test_grades_by_hand(learned):
  learner, known = learned
  shown, names = pictures(cat=3, hen=3)
  guesses = learner.predict(known, shown)
  scores = learner.evaluate(known, shown, names)
  hits = [g == n for g, n in zip(guesses, names, strict=True)]
  assert scores.accuracy == pytest.approx(np.mean(hits))
  assert scores.by_class == pytest.approx(
    {"cat": np.mean(hits[:3]), "hen": np.mean(hits[3:])}
  )
  assert scores.confusion.sum() == 6 and scores.confusion.shape == (9, 9)
  assert scores.confusion[8].sum() == 3  # Hens came last.


def test_methods_have_their_own_read_out():
  learner = make(method="icarl")
  known = learn(learner, None, "cat dog")
  shown = images(5, 1)
  own = learner.predict_proba(known, shown)
  nme = learner.predict_proba(known, shown, readout="nme")
  assert np.array_equal(own, nme)


def test_asking_about_any_number_of_images_is_one_program(learned):
  learner, known = learned
  shown = images(9, 0)
  learner.predict_proba(known, shown, readout="nme")
  with compilations.counted() as count:
    for n in range(1, 9):
      learner.predict_proba(known, shown[:n], readout="nme")
      learner.predict_proba(known, shown[:n], readout="head")
  assert count.programs == 0
