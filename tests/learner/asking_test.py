"""A learner is asked about images: read-outs by hand."""

import numpy as np
import pytest
from support import compilations
from support.learners import learn, make
from support.saved_learner import images, pictures

from mnemonics_jax import methods


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
