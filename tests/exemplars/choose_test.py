"""Which images become exemplars; `contracts/strategies_test.py` has what all promise."""

import dataclasses

import jax
import numpy as np
import pytest
from support import tiny

from mnemonics_jax import bilevel, exemplars, memory, methods, phase
from mnemonics_jax.exemplars import choose
from mnemonics_jax.phase import evaluate
from mnemonics_jax.phase.evaluate import extract

JPEG = memory.Jpeg(50)


def phases(method=methods.LUCIR(), **options):
  """The first two phases of a tiny run whose model is never trained."""
  config, stream = tiny.setup(method, **options)
  untrained = lambda phase, _: phase.state.variables
  first = phase.begin_run(0, config)
  second, _ = phase.run_phase(first, stream[0], config, train=untrained)
  return (
    phase.Phase(first, stream[0], config),
    phase.Phase(second, stream[1], config),
  )


def chosen(now):
  return exemplars.strategy(now.config).choose(now, now.state.variables)


@pytest.mark.parametrize(
  "options, parts",
  [
    (dict(exemplars="herding"), [24, 12]),
    (dict(exemplars="random"), []),
    (dict(exemplars="mnemonics"), [36]),  # Learned from all features.
    (dict(exemplars="mnemonics", init_exemplars="random"), [36]),
    (dict(exemplars="selected"), [36]),
    # As they are, and as they will be kept.
    (dict(exemplars="herding", codec=JPEG), [24, 24, 12, 12]),
  ],
)
def test_no_more_classes_are_looked_at_together_than_have_to_be(
  monkeypatch, options, parts
):
  """Three classes of 12 images, each of which passes the network once."""
  first, _ = phases(**options)
  looks, original = [], choose.extract_features
  monkeypatch.setattr(
    choose,
    "extract_features",
    lambda *args: looks.append(len(args[3])) or original(*args),
  )
  monkeypatch.setattr(evaluate, "TOGETHER", 13)
  chosen(first)
  assert looks == parts


@pytest.mark.parametrize("kind", ["herding", "random", "selected"])
def test_images_are_encoded_once(monkeypatch, kind):
  policy = memory.fit(
    memory.PerClassBytes(400), JPEG, tiny.dataset().train_images
  )
  config, stream = tiny.setup(
    methods.LUCIR(), exemplars=kind, codec=JPEG, memory=policy
  )
  first = phase.Phase(phase.begin_run(0, config), stream[0], config)
  encoded, original = [], memory.Jpeg.encode
  monkeypatch.setattr(
    memory.Jpeg,
    "encode",
    lambda self, x: encoded.append(len(x)) or original(self, x),
  )
  chosen(first)
  assert encoded == [36]


def test_classes_in_any_order_are_looked_at_together(monkeypatch):
  first, _ = phases(exemplars="herding")
  data = first.data
  mixed = np.random.default_rng(0).permutation(len(data.labels))
  mixed = data._replace(images=data.images[mixed], labels=data.labels[mixed])
  monkeypatch.setattr(evaluate, "TOGETHER", 13)
  whole, other = (
    chosen(dataclasses.replace(first, data=some)) for some in (data, mixed)
  )
  np.testing.assert_array_equal(other.labels, whole.labels)
  np.testing.assert_array_equal(other.images, whole.images)


def test_random_choice_follows_the_phase_and_the_seed():
  first, second = phases(exemplars="random")
  one, two = chosen(first), chosen(first)
  np.testing.assert_array_equal(one.images, two.images)
  reseeded = first.state._replace(key=jax.random.key(9))
  other = chosen(dataclasses.replace(first, state=reseeded))
  assert (other.images != one.images).any()
  assert chosen(second).labels.tolist() == [3] * 3


def test_the_upper_bound_chooses_among_new_images_only():
  _, second = phases(methods.Joint(), exemplars="random")
  assert set(second.data.labels.tolist()) == {0, 1, 2, 3}
  found = chosen(second)
  assert set(found.labels.tolist()) == {3}
  assert set(found.input_labels.tolist()) == {3}


@pytest.mark.parametrize("codec", [memory.Raw(), JPEG])
def test_herding_by_hand(codec):
  """Of images as they are kept, toward the mean of images as they are."""
  first, _ = phases(exemplars="herding", codec=codec)
  config, variables = first.config, first.state.variables
  found, differs = chosen(first), codec.exact
  features = lambda x: extract(config.model, config.method, variables, x)[0]
  unit = lambda x: x / np.linalg.norm(x, axis=1, keepdims=True)
  for label in range(3):
    own = first.data.images[first.data.labels == label]
    mean = unit(features(own)).mean(0)
    candidates = unit(features(memory.round_trip(codec, own)))
    picks, weight = [], mean.copy()
    for _ in range(3):
      scores = candidates @ weight
      scores[picks] = -np.inf
      picks.append(int(scores.argmax()))
      weight += mean - candidates[picks[-1]]
    np.testing.assert_array_equal(
      found.images[found.labels == label], own[picks]
    )
    differs |= choose.herding(features(own), 3).tolist() != picks
  assert differs


def test_candidates_are_the_first_of_herding_and_come_best_first(monkeypatch):
  _, now = phases(exemplars="selected")
  seen, learn = {}, bilevel.learn_choice

  def watched(key, candidates, scores, counts, head, valid, **options):
    seen.update(candidates=candidates, scores=scores, counts=counts)
    found = learn(key, candidates, scores, counts, head, valid, **options)
    seen["learned"] = found.scores
    return found

  monkeypatch.setattr(bilevel, "learn_choice", watched)
  found = chosen(now)
  # Nine candidates of the one new class, in the shape of all later phases.
  candidates = seen["candidates"]
  assert candidates.labels.shape == (3 * 6,)
  assert int(candidates.mask.sum()) == 9
  assert seen["counts"].tolist() == [0, 0, 0, 3, 0, 0]
  np.testing.assert_allclose(seen["scores"][:9], -np.arange(9) / 3, rtol=1e-6)
  plain, _ = tiny.setup(
    methods.LUCIR(), exemplars="herding", memory=memory.PerClass(9)
  )
  herded = chosen(dataclasses.replace(now, config=plain))
  best = np.argsort(-np.asarray(seen["learned"])[:9], kind="stable")[:3]
  np.testing.assert_array_equal(found.images, herded.images[best])


def test_the_best_are_kept_beside_those_that_are_held_out(monkeypatch):
  """Scores in the order of herding choose the images of herding."""
  monkeypatch.setattr(
    choose.Selected,
    "scores",
    lambda _, __, ___, candidates, **____: -np.arange(len(candidates[1])),
  )
  options = dict(memory=memory.PerClass(8), data=tiny.dataset(train=30))

  def kept(kind):
    config, stream = tiny.setup(methods.BiC(), exemplars=kind, **options)
    now = phase.Phase(phase.begin_run(0, config), stream[0], config)
    assert np.bincount(now.data.labels[now.held_out]).tolist() == [1, 1, 1]
    return chosen(now)

  best, herded = kept("selected"), kept("herding")
  np.testing.assert_array_equal(best.labels, np.repeat([0, 1, 2], 8))
  np.testing.assert_array_equal(best.images, herded.images)
