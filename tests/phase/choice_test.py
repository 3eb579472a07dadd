"""Exemplars chosen by a learned score, within a phase."""

import numpy as np
from support import tiny

from mnemonics_jax import bilevel, memory, methods, phase
from mnemonics_jax.phase import choice, exemplars

UNTRAINED = dict(train=lambda phase, _: phase.state.variables)


def _phases(**options):
  config, stream = tiny.setup(
    methods.LUCIR(), exemplars="selected", memory=memory.PerClass(3), **options
  )
  first = phase.begin_run(0, config)
  second, result = phase.run_phase(first, stream[0], config, **UNTRAINED)
  return phase.Phase(second, stream[1], config), result


def test_real_images_of_each_class_are_chosen_as_many_as_fit():
  now, result = _phases()
  data = tiny.dataset()
  assert result.memory_images == 9 and not result.diagnostics
  for image, label in zip(*memory.flat(now.state.memory), strict=True):
    own = data.train_images[data.train_labels == label]
    assert (own == image).all((1, 2, 3)).any()


def test_candidates_are_the_first_of_herding_and_come_best_first(monkeypatch):
  now, _ = _phases()
  variables, seen = now.state.variables, {}
  learn = bilevel.learn_choice

  def watched(key, candidates, scores, counts, head, valid, **options):
    seen.update(candidates=candidates, scores=scores, counts=counts)
    found = learn(key, candidates, scores, counts, head, valid, **options)
    seen["learned"] = found.scores
    return found

  monkeypatch.setattr(bilevel, "learn_choice", watched)
  chosen = exemplars.choose(now, variables)
  # Nine candidates of the one new class, in the shape of all later phases.
  candidates = seen["candidates"]
  assert candidates.labels.shape == (choice.WIDER * 6,)
  assert int(candidates.mask.sum()) == 9
  assert seen["counts"].tolist() == [0, 0, 0, 3, 0, 0]
  np.testing.assert_allclose(seen["scores"][:9], -np.arange(9) / 3, rtol=1e-6)
  plain = dict(exemplars="herding", memory=memory.PerClass(9))
  config, stream = tiny.setup(methods.LUCIR(), **plain)
  herded = exemplars.choose(
    phase.Phase(now.state, stream[1], config), variables
  )
  best = np.argsort(-np.asarray(seen["learned"])[:9], kind="stable")[:3]
  np.testing.assert_array_equal(chosen.images, herded.images[best])


def test_the_best_are_kept_beside_those_that_are_held_out(monkeypatch):
  """If scores are in the order of herding, herding is what comes of them."""
  monkeypatch.setattr(
    choice, "best_first", lambda _, __, features, *___: np.arange(len(features))
  )
  options = dict(memory=memory.PerClass(8), data=tiny.dataset(train=30))

  def chosen(kind):
    config, stream = tiny.setup(methods.BiC(), exemplars=kind, **options)
    now = phase.Phase(phase.begin_run(0, config), stream[0], config)
    assert np.bincount(now.data.labels[now.held_out]).tolist() == [1, 1, 1]
    return exemplars.choose(now, now.state.variables)

  best, herded = chosen("selected"), chosen("herding")
  np.testing.assert_array_equal(best.labels, np.repeat([0, 1, 2], 8))
  np.testing.assert_array_equal(best.images, herded.images)


def test_bytes_and_a_hold_out_are_respected():
  policy = memory.fit(
    memory.PerClassBytes(400), memory.Jpeg(50), tiny.dataset().train_images
  )
  config, stream = tiny.setup(
    methods.BiC(), exemplars="selected", memory=policy, codec=memory.Jpeg(50)
  )
  state, _ = phase.run_phase(
    phase.begin_run(0, config), stream[0], config, **UNTRAINED
  )
  for label in range(3):
    assert state.memory.of_class(label).sizes.sum() <= 400
  assert state.memory.counts[:3].min() >= 2
